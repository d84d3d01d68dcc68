"""Configs that fit as a server and not as a benchmark: llama-bench keeps the logits of a whole micro-batch."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from service.engine.advice import OF_BENCHMARK
from service.engine.catalogue import engine_devices, resolve
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.measured.chosen import chosen
from service.engine.memory.predict import predict_memory
from service.engine.planner.ranking.current_command import parsed_command
from service.engine.run.resolved import resolve_run
from service.engine.run_flags import to_flags
from service.flows.results.cells import cell_of
from tests.engine.planner.asking import ask, first
from tests.models import build

HARDWARE = parse_hardware("RTX 3080 10GB, Ryzen 7 5800X3D, 32GB DDR4-3200, headless")
MODEL, MIX = "Qwen3-14B", "iq4_xs"


def largest(command: str, engine: Engine) -> float:
    """MiB that a printed command takes on the card at most."""
    parsed, rig = parse(command, engine), resolve(HARDWARE)
    devices = engine_devices(rig, engine, (0,))
    run = resolve_run(engine, build(MODEL, MIX), parsed.flags, rig, devices, tool=parsed.tool)
    return predict_memory(run).total(0).high / 2**20


def test_a_micro_batch_is_as_large_as_the_server_has_room_for_and_the_benchmark_has_a_smaller_one() -> None:
    config = first(ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp"))
    smaller, capacity = config.smaller_benchmark, config.devices[0].capacity_mib
    assert smaller is not None
    assert f" -ub {config.flags.n_ubatch} " in config.commands.server
    assert f" -ub {smaller.n_ubatch} " in config.commands.bench
    assert largest(config.commands.server, "llama.cpp") < capacity
    assert largest(config.commands.bench, "llama.cpp") < capacity
    twice = config.commands.bench.replace(f"-ub {smaller.n_ubatch}", f"-ub {2 * smaller.n_ubatch}")
    assert largest(twice, "llama.cpp") > capacity - config.devices[0].reserve_mib
    said = f"its benchmark has -ub {smaller.n_ubatch}: llama-bench keeps"
    assert [reason.text.startswith(said) for reason in config.reasons if reason.rule == OF_BENCHMARK] == [True]
    assert not any("benchmark" in note for note in config.notes)


def test_what_is_measured_of_it_is_compared_with_the_speed_of_the_smaller_micro_batch() -> None:
    body = ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp")
    config = first(body)
    smaller = config.smaller_benchmark
    assert smaller is not None
    measured = chosen(body.configs, body.goal, None, None).measurements[0]
    assert (measured.flags.n_ubatch, measured.n_prompt) == (smaller.n_ubatch, smaller.n_ubatch)
    assert measured.speed == smaller.speed
    assert smaller.speed[-1].pp_tps < config.speed[-1].pp_tps


def test_a_command_in_use_is_measured_with_a_micro_batch_that_fits_too() -> None:
    config = first(ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp"))
    larger = config.commands.server.replace(f"-ub {config.flags.n_ubatch}", f"-ub {2 * config.flags.n_ubatch}")
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=larger)
    body = ask(MODEL, MIX, hardware=HARDWARE, constraints=limits)
    assert body.mine is not None
    assert body.mine.fits
    assert body.mine.smaller_benchmark is not None
    baseline = chosen(body.configs, body.goal, body.mine, parsed_command(limits)).measurements[0]
    assert baseline.flags.n_ubatch == body.mine.smaller_benchmark.n_ubatch


@pytest.mark.parametrize(
    ("engine", "build_date"), [("ik_llama.cpp", None), ("llama.cpp", "2026-05-29")], ids=["ik", "older llama.cpp"]
)
def test_a_benchmark_that_takes_what_the_server_takes_has_the_same_micro_batch(
    engine: Engine, build_date: str | None
) -> None:
    choice = EngineChoice(engine, build=build_date)
    config = first(ask(MODEL, MIX, hardware=HARDWARE, constraints=Constraints(engines=[choice])))
    assert config.smaller_benchmark is None
    assert f" -ub {config.flags.n_ubatch} " in config.commands.bench


OF_MANY_TOKENS = ("Qwen3.5-35B-A3B", "q4_k_m")  # 248,320 of them: logits of 4,096 take 3.8 GiB
SMALL = parse_hardware("RTX 3060 12GB, Xeon E5-2650 v4, 32GB DDR4-2400")


def ik(build_date: str | None = None, keep_flags: list[str] | None = None) -> Constraints:
    return Constraints(engines=[EngineChoice("ik_llama.cpp", build=build_date)], keep_flags=keep_flags)


def test_ik_llama_cpp_keeps_the_logits_of_as_many_tokens_as_requests_where_all_have_no_room() -> None:
    """As its author advises: `-b 8192 -ub 8192` and `-wgt 1` (ik_llama.cpp issue 1699, pull 1560)."""
    body = ask(*OF_MANY_TOKENS, hardware=SMALL, constraints=ik())
    config = first(body)
    assert config.flags.n_ubatch >= 2048
    assert all(" -wgt 1 " in command for command in (config.commands.server, config.commands.bench))
    assert config.smaller_benchmark is None
    assert [r.text for r in config.reasons if r.rule == "few-logits"]
    assert chosen(body.configs, body.goal, None, None).measurements[0].flags.n_logits == 1


def test_ik_llama_cpp_is_not_told_how_many_logits_to_keep_where_there_is_room_for_all() -> None:
    roomy = parse_hardware("RTX 3090, Ryzen 7 5800X3D, 64GB DDR4-3200")
    assert first(ask("Qwen3-14B", "q4_k_m", hardware=roomy, constraints=ik())).flags.n_logits is None


def test_builds_from_before_the_option_keep_all_logits() -> None:
    config = first(ask(*OF_MANY_TOKENS, hardware=SMALL, constraints=ik("2026-03-30")))
    assert config.flags.n_logits is None
    assert "-wgt" not in config.commands.server


def test_layers_that_fit_leaves_in_ram_are_those_of_the_printed_command() -> None:
    """`--fit` counts the logits, so it leaves 30 layers of Nemotron-Super in RAM without `-wgt`, 29 with it."""
    hardware = parse_hardware("RTX 4060 Ti 16GB 15.8 GiB free PCIe 3.0 x4, Ryzen 7 5800X3D, 192GB DDR4-3600")
    limits = Constraints(engines=[EngineChoice("ik_llama.cpp")], kv_types=["f16"], reserve_mib=0)
    goal = GoalRequest(preset="fastest", depth=0, context=4096)
    config = first(ask("Nemotron-Super", "iq4_xs", hardware=hardware, goal=goal, constraints=limits))
    assert " --fit " in config.commands.server
    model = build("Nemotron-Super", "iq4_xs")
    report = check(config.commands.server, "ik_llama.cpp", model, resolve(hardware), reserve_mib=0)
    assert [d.total_mib for d in report.memory.devices] == [d.total_mib for d in config.devices]


def test_a_limit_of_logits_that_the_user_keeps_stays() -> None:
    roomy = parse_hardware("RTX 3090, Ryzen 7 5800X3D, 64GB DDR4-3200")
    limits = ik(keep_flags=["-wgt 4"])
    assert "-wgt 4" in first(ask("Qwen3-14B", "q4_k_m", hardware=roomy, constraints=limits)).commands.server


def test_how_many_logits_are_kept_makes_no_other_measurement() -> None:
    """Agents of before 2026-11-28 do not know the field, so it is left out where it is not set."""
    body = ask(*OF_MANY_TOKENS, hardware=SMALL, constraints=ik())
    one = chosen(body.configs, body.goal, None, None).measurements[0]
    plain = replace(one, flags=replace(one.flags, n_logits=UNSET))
    assert cell_of(one, []) == cell_of(plain, [])
    assert b"n_logits" not in msgspec.json.encode(plain.flags)
    assert to_flags(plain.flags).n_logits is None
