"""The command in use as a candidate: what it is, where it ranks, and what the configs gain on it."""

from __future__ import annotations

import pytest

from service.engine.advice import AdviceBody, Mine
from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.errors import InvalidFlags, UnknownVariant
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.wire.advice.text import mine_lines
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.models import build
from tests.sampling import some_of

QWEN = "Qwen3-235B-A22B"
FILE = f"./llama-server -m /models/{QWEN}-q2_K.gguf -c 16384"


def asked(command: str, *mixes: str, engine: str | None = "llama.cpp", **more: object) -> AdviceBody:
    engines = [EngineChoice(engine)] if engine else None  # type: ignore[arg-type]
    limits = Constraints(engines=engines, current_command=command, **more)  # type: ignore[arg-type]
    return ask(QWEN, *(mixes or ("q2_K",)), hardware=rigs.ONE_3090_DESKTOP, constraints=limits)


def mine_of(body: AdviceBody) -> Mine:
    assert body.mine is not None
    return body.mine


def test_all_experts_in_ram_on_a_3090_gains_what_its_empty_memory_could_hold() -> None:
    body = asked(f"{FILE} -ngl 99 -ot exps=CPU -t 16 -ub 2048")
    mine, versus = mine_of(body), first(body).versus_mine
    assert (mine.engine, mine.variant, mine.fits, mine.rank) == ("llama.cpp", "q2_K", True, 2)
    assert versus is not None
    assert versus.tg.times > 1.1
    assert versus.tg.called
    assert versus.tg.low < versus.tg.times < versus.tg.high
    assert versus.gib["CUDA0"] > 10
    assert versus.gib["CPU"] < -10
    assert "Against your command: TG +" in body.headline


def test_its_figures_are_those_of_check() -> None:
    command = f"{FILE} -ngl 99 -ot exps=CPU -t 16 -ub 2048"
    mine = mine_of(asked(command))
    report = check(command, None, build(QWEN, "q2_K"), resolve(rigs.ONE_3090_DESKTOP), depths=[4000])
    assert mine.devices == report.memory.devices
    assert mine.speed[-1] == report.speed[0]
    assert mine.findings == [f for f in report.findings if f.severity != "info"]


def test_which_of_several_commands_is_in_use_is_said() -> None:
    assumed = asked(f"{FILE} -ngl 20\n./llama-server -m draft.gguf").assumed
    (told,) = [one for one in assumed if one.field == "constraints.current_command"]
    assert told.why.endswith("neither checked nor counted: `./llama-server -m draft.gguf`")
    assert told.value.endswith("-ngl 20")


@pytest.mark.parametrize(
    ("engine", "flags"),
    some_of(
        [
            ("llama.cpp", "-ngl 99 -ncmoe 90 -ctk q8_0 -ctv q8_0 -ub 1024"),
            ("ik_llama.cpp", "-ngl 99 -ncmoe 90 -ctk q8_0 -ctv q8_0 -ub 1024"),
            ("llama.cpp", "-ngl 99 -ot exps=CPU"),
            ("ik_llama.cpp", "-ngl 20 -ot exps=CPU -fa off"),
            ("ik_llama.cpp", "-ngl 99 -ot exps=CPU"),
            ("llama.cpp", "-ngl 20 -ot exps=CPU -fa off"),
        ],
        3,
    ),
)
def test_the_changes_add_up_to_the_whole(engine: str, flags: str) -> None:
    body = asked(f"{FILE} {flags}", "q2_K", "q3_K_M", engine=engine)
    for config in body.configs:
        versus = config.versus_mine
        assert versus is not None
        assert sum(c.tg_tps for c in versus.changes) == pytest.approx(versus.tg.tps, abs=0.001)
        assert sum(c.pp_tps for c in versus.changes) == pytest.approx(versus.pp.tps, abs=0.001)
        for device, gib in versus.gib.items():
            assert sum(c.gib.get(device, 0) for c in versus.changes) == pytest.approx(gib, abs=0.001)
        assert mine_of(body).speed[-1].tg_tps + versus.tg.tps == pytest.approx(config.speed[-1].tg_tps, abs=0.02)


def test_a_larger_micro_batch_is_a_change_of_its_own_with_its_reason() -> None:
    versus = first(asked(f"{FILE} -ngl 99 -ot exps=CPU -ub 512")).versus_mine
    assert versus is not None
    change = next(c for c in versus.changes if "-ub 512 -> " in c.change)
    assert change.pp_tps > 100
    assert change.tg_tps == 0
    assert change.gib["CUDA0"] > 0
    assert "copies over PCIe" in change.why


@pytest.mark.full
def test_a_command_with_another_variant_is_compared_across_variants() -> None:
    body = asked(f"{FILE} -ngl 99 -ot exps=CPU", "q2_K", "q4_K_M")
    other = next(c for c in body.configs if c.variant == "q4_K_M")
    assert other.versus_mine is not None
    assert other.versus_mine.changes[0].change.startswith("q2_K -> q4_K_M")


def test_the_advised_command_itself_cannot_be_beaten_and_comes_first() -> None:
    config = first(asked(f"{FILE} -ngl 99 -ot exps=CPU"))
    advised = config.commands.server
    body = asked(advised, current_engine=config.engine)
    assert mine_of(body).rank == 1
    assert first(body).is_mine
    assert first(body).rank == 1
    assert [c.rank for c in body.configs] == list(range(1, len(body.configs) + 1))
    assert "your own command" in body.headline
    again = parse(first(body).commands.server, config.engine)
    assert again.flags == parse(advised, config.engine).flags
    assert [c.flags for c in body.configs].count(config.flags) == 1


@pytest.mark.full
def test_a_command_that_beats_the_reserve_is_first_and_told_how_little_stays_free() -> None:
    free = asked(f"{FILE} -ngl 99 -ot exps=CPU", reserve_mib=8192)
    tight = first(asked(f"{FILE} -ngl 99 -ot exps=CPU", reserve_mib=100)).commands.server
    body = asked(tight, reserve_mib=8192)
    assert first(free).speed[-1].tg_tps < first(body).speed[-1].tg_tps
    assert first(body).is_mine
    assert any("MiB stay free on CUDA0" in note for note in first(body).notes)


def test_a_command_that_does_not_fit_is_said_so_and_has_no_rank() -> None:
    body = asked(f"{FILE} -ngl 99")
    mine = mine_of(body)
    assert (mine.fits, mine.rank) == (False, None)
    assert "does not fit" in mine.verdict
    assert "GiB too little on CUDA0" in body.headline
    assert first(body).versus_mine is None


def test_a_broken_command_is_said_so() -> None:
    mine = mine_of(asked(f"{FILE} -ngl 99 -ot exps=CUDA7"))
    assert mine.rank is None
    assert "is broken" in mine.verdict


@pytest.mark.full
def test_its_context_is_the_goal_s_where_none_is_asked_for() -> None:
    body = asked(f"./llama-server -m {QWEN}-q2_K.gguf -c 40960 -ngl 99 -ot exps=CPU")
    assert body.goal.context == 40_960
    assert any(a.field == "goal.context" and "in use" in a.why for a in body.assumed)


@pytest.mark.full
def test_a_context_smaller_than_asked_for_has_no_rank() -> None:
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=f"{FILE} -ngl 99 -ot exps=CPU")
    body = ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(context=32_768), constraints=limits)
    assert mine_of(body).rank is None
    assert "the goal needs 32,768" in mine_of(body).verdict


def test_a_command_of_another_model_is_a_problem_that_names_the_variants() -> None:
    with pytest.raises(UnknownVariant) as error:
        asked("llama-server -m /models/Llama-3-8B-Q4_K_M.gguf -ngl 99", "q2_K", "q4_K_M")
    assert error.value.field == "constraints.current_command"
    assert error.value.choices == ("q2_K", "q4_K_M")


def test_what_is_no_command_is_a_problem_of_its_field() -> None:
    with pytest.raises(InvalidFlags) as error:
        asked("please make it fast")
    assert error.value.field == "constraints.current_command"


@pytest.mark.full
def test_the_hub_s_own_name_of_a_variant_is_understood() -> None:
    mine = mine_of(asked("llama-server -hf someone/Qwen:q2_k -c 16384 -ngl 99 -ot exps=CPU", "q2_K", "q4_K_M"))
    assert mine.variant == "q2_K"


@pytest.mark.full
def test_four_cards_with_one_hidden_by_the_command_shows_what_the_hidden_one_adds() -> None:
    command = f"CUDA_VISIBLE_DEVICES=0,1 llama-server -m {QWEN}-q4_K_M.gguf -c 16384 -ngl 99 -ot exps=CPU -ub 2048"
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=command)
    body = ask(QWEN, "q4_K_M", hardware=rigs.TWO_5090_TWO_4090, constraints=limits)
    versus = next(c.versus_mine for c in body.configs if len(c.devices) == 5)
    assert versus is not None
    assert versus.gib["CUDA3"] > 10
    assert any("2 GPUs -> 4 GPUs" in c.change for c in versus.changes)


def test_a_rig_without_gpu_compares_threads() -> None:
    hardware: Hardware = rigs.TWO_EPYC_NO_GPU
    limits = Constraints(current_command=f"llama-server -m {QWEN}-q4_K_M.gguf -c 16384 -t 8")
    body = ask(QWEN, "q4_K_M", hardware=hardware, constraints=limits)
    mine = mine_of(body)
    assert mine.fits
    assert first(body).versus_mine is not None or first(body).is_mine


@pytest.mark.full
def test_what_fit_places_fills_ram_at_the_same_cost_as_what_is_advised() -> None:
    rig = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 5950X"), ram=Ram(total_gb=64, mts=3600))
    limits = Constraints(current_command="llama-server -m mine.gguf -c 8192")
    body = ask("GLM-4.5-Air", "ffn_down_exps=q5_K,exps=q4_K,*=q6_K", hardware=rig, constraints=limits)
    mine, best = mine_of(body), first(body)
    assert not best.is_mine
    assert mine.rank is not None
    assert mine.rank > 1
    assert best.goal_seconds[1] < mine.goal_seconds[1]
    assert best.speed[-1].pp_tps > 1.5 * mine.speed[-1].pp_tps


def test_a_command_for_a_vulkan_build_is_compared_as_one() -> None:
    rig = Hardware(gpus=[Gpu(name="RX 7900 XTX")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=192))
    limits = Constraints(current_command=f"{FILE} -ngl 99 -ot exps=CPU -dev Vulkan0")
    mine = mine_of(ask(QWEN, "q2_K", hardware=rig, constraints=limits))
    assert [row.device for row in mine.devices] == ["Vulkan0", "CPU"]
    assert mine.rank is not None


def test_what_is_said_of_a_command_keeps_its_capitals() -> None:
    body = asked(f"{FILE} -ngl 99")
    (line, *_) = mine_lines(mine_of(body), body.configs, full=False)
    assert "Does not fit: " in line
    assert "GiB too little on CUDA0" in line


@pytest.mark.full
def test_the_engine_in_use_comes_first_where_the_other_gains_a_few_per_cent_only() -> None:
    hardware = parse_hardware("RTX 4090, Ryzen 9 7950X, 96GB DDR5-6000")

    def engine_for(command: str | None, engine: Engine | None) -> str:
        limits = Constraints(current_command=command, current_engine=engine)
        return first(ask("GLM-4.5-Air", "q4_k_m", hardware=hardware, constraints=limits)).engine

    used = "./llama-server -m /models/GLM-4.5-Air-q4_k_m.gguf -c 16384 -ngl 99 -ot exps=CPU"
    assert engine_for(None, None) == "ik_llama.cpp", "it takes 6 % less time"
    assert engine_for(used, "llama.cpp") == "llama.cpp"
    assert engine_for(used, "ik_llama.cpp") == "ik_llama.cpp"
