"""The machines and questions of the threads that people copy commands from, each with the advice that is expected."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from service.engine.advice import AdvisedConfig
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.goal import GoalRequest, resolve_goal
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.rules.all_rules import findings
from service.engine.rules.case import Case, case_of
from service.engine.speed.predict import goal_seconds
from tests import rigs
from tests.checks import attention_is_on_gpus, placement_of, problems_of
from tests.engine.planner.asking import ask, first
from tests.models import build
from tests.sampling import some_of

# Mixes that approximate the makers' cards (sizes of the files: tests/data/perf.jsonl).
R1_IQ4_KS_R4 = "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"
R1_UD_Q4_K_XL = "ffn_down_exps=q5_K,exps=q4_K,*=q6_K"
R1_UD_Q3_K_XL = "exps=q3_K,*=q6_K"
R1_UD_Q2_K_XL = "ffn_down_exps=q3_K,exps=q2_K,*=q6_K"
R1_IQ1_S_R4 = "ffn_down_exps=iq1_m_r4,exps=iq1_s_r4,*=iq5_ks"

EPYC_9355 = Cpu(model="EPYC 9355", sockets=1, physical_cores=32)
TWELVE_CHANNELS = Ram(total_gb=768, type="DDR5", channels=12, mts=6400)
ONE_PRO_6000 = Hardware(gpus=[Gpu(name="RTX PRO 6000 Blackwell", pcie="5.0 x16")], cpu=EPYC_9355, ram=TWELVE_CHANNELS)
TWO_PRO_6000 = Hardware(
    gpus=[Gpu(name="RTX PRO 6000 Blackwell", count=2, pcie="5.0 x16")],
    cpu=Cpu(model="Threadripper PRO 7975WX"),
    ram=Ram(total_gb=512, type="DDR5", channels=8, mts=5600),
)
SMALL_CARD = Hardware(
    gpus=[Gpu(name="RTX 4070")], cpu=Cpu(model="i5-12600K"), ram=Ram(total_gb=32, type="DDR5", channels=2, mts=6000)
)
SEVEN_CARDS = Hardware(
    gpus=[
        Gpu(name="RTX 5090", count=2, pcie="5.0 x8"),
        Gpu(name="RTX 4090", count=2, pcie="4.0 x4"),
        Gpu(name="RTX 3090", count=2, pcie="4.0 x4"),
        Gpu(name="RTX A6000", pcie="4.0 x4"),
    ],
    cpu=Cpu(model="Ryzen 7 7800X3D"),
    ram=Ram(total_gb=192, type="DDR5", channels=2, mts=6000, measured_bandwidth_gbs=60),
)
# Panchovix, ik_llama.cpp issue 572 and pull 559 (2025-07): the cards in the rig's own CUDA order are renamed to ours.
SEVEN_CARDS_COMMAND = (
    "llama-server -m DeepSeek-V3-0324-UD-Q3_K_XL.gguf -c 16384 -ngl 999 -fa on -mla 3 -amb 512 -ub 2048 "
    '-ot "blk.(0|1|2|3|4|5|6).ffn.=CUDA0" -ot "blk.(7|8|9).ffn.=CUDA2" -ot "blk.(10|11|12).ffn.=CUDA3" '
    '-ot "blk.(13|14|15|16).ffn.=CUDA1" -ot "blk.(17|18|19).ffn.=CUDA4" -ot "blk.(20|21|22).ffn.=CUDA5" '
    '-ot "blk.(23|24|25|26|27|28|29|30|31).ffn.=CUDA6" -ot "blk.35.ffn_gate_exps.weight=CUDA4" '
    '-ot "blk.36.ffn_gate_exps.weight=CUDA5" -ot "ffn.*=CPU"'
)


def placed_layers(config: AdvisedConfig, hardware: Hardware, model: str) -> dict[str, int]:
    """How many layers have their down experts on each device, by the printed server command."""
    rig, built = resolve(hardware), build(model, config.variant)
    placement = placement_of(parse(config.commands.server, config.engine), built, rig)
    names = [row.device for row in config.devices]
    found = dict.fromkeys(names, 0)
    for name, device in placement.tensors.items():
        if "ffn_down_exps.weight" in name:
            found[names[device]] += 1
    return found


def attention_on_gpus(config: AdvisedConfig, hardware: Hardware, model: str) -> bool:
    command = parse(config.commands.server, config.engine)
    return attention_is_on_gpus(placement_of(command, build(model, config.variant), resolve(hardware)))


def case(command: str, engine: Engine, model: str, mix: str, hardware: Hardware) -> Case:
    return case_of(parse(command, engine), build(model, mix), resolve(hardware), command, "cuda")


def seconds(case: Case) -> float:
    """The time of the chat goal with a command."""
    goal = resolve_goal(GoalRequest(), case.model.n_ctx_train)
    return goal_seconds(case.run, goal).expected


def free_on_cards(config: AdvisedConfig) -> Iterator[float]:
    """MiB left on each card beyond its reserve."""
    return (row.free_mib - row.reserve_mib for row in config.devices if row.device != "CPU")


@pytest.mark.full
def test_two_5090_and_two_4090_with_qwen3_235b() -> None:
    model, mix, hardware = "Qwen3-235B-A22B", "q4_k_m", rigs.TWO_5090_TWO_4090
    config = first(ask(model, mix, hardware=hardware))
    layers = placed_layers(config, hardware, model)
    assert problems_of(config, build(model, mix), resolve(hardware)) == []
    assert attention_on_gpus(config, hardware, model)
    assert sum(n for device, n in layers.items() if device != "CPU") >= 60
    assert min(layers["CUDA0"], layers["CUDA1"]) > max(layers["CUDA2"], layers["CUDA3"])


def test_two_5090_and_two_4090_with_r1_in_ik_types() -> None:
    """llama.cpp cannot load the file; attention is on the cards; prompts copy experts, so -ub passes 1,024."""
    model, hardware = "DeepSeek-R1-0528", rigs.TWO_5090_TWO_4090
    body = ask(model, R1_IQ4_KS_R4, hardware=hardware)
    config = first(body)
    assert [r.engine for r in body.refused] == ["llama.cpp"]
    assert "IQ4_KS_R4" in body.refused[0].reason
    assert config.flags.n_ubatch >= 1024
    assert config.flags.mla == 3
    assert attention_on_gpus(config, hardware, model)
    assert max(free_on_cards(config)) < 6_144  # less than the experts of one layer


def test_one_pro_6000_with_r1_q4_is_as_fast_as_its_owner_measured() -> None:
    """17.0 t/s with 4 layers of experts on the card and PP 550 at -ub 8192 (sousekd, ik issue 765, IQ4_KS_R4)."""
    config = first(ask("DeepSeek-R1-0528", R1_UD_Q4_K_XL, hardware=ONE_PRO_6000, engine="ik_llama.cpp"))
    at_start = config.speed[0]
    assert placed_layers(config, ONE_PRO_6000, "DeepSeek-R1-0528")["CUDA0"] >= 4
    assert config.flags.n_ubatch >= 2048
    assert at_start.tg_high > 16.98
    assert max(free_on_cards(config)) < 6_144  # less than the experts of one layer


@pytest.mark.full
def test_two_pro_6000_hold_the_smallest_r1_whole_and_prefer_quality_that_is_worth_its_time() -> None:
    """IQ1_S on both cards made 42 t/s and 820 for prompts (eous, ik discussion 477)."""
    body = ask("DeepSeek-R1-0528", R1_IQ1_S_R4, R1_UD_Q2_K_XL, hardware=TWO_PRO_6000, engine="ik_llama.cpp")
    whole = next(c for c in body.configs if c.variant == R1_IQ1_S_R4)
    assert whole.strategy == "all on GPU"
    assert whole.speed[0].tg_tps > 30
    assert first(body).variant == R1_UD_Q2_K_XL


@pytest.mark.full
@pytest.mark.parametrize("mix", [R1_UD_Q3_K_XL, R1_UD_Q2_K_XL], ids=["UD-Q3_K_XL", "UD-Q2_K_XL"])
def test_seven_unlike_cards_with_r1_beat_the_command_that_was_used(mix: str) -> None:
    model, hardware = "DeepSeek-R1-0528", SEVEN_CARDS
    config = first(ask(model, mix, hardware=hardware, engine="ik_llama.cpp"))
    used = case(SEVEN_CARDS_COMMAND, "ik_llama.cpp", model, mix, hardware)
    assert attention_on_gpus(config, hardware, model)
    assert problems_of(config, build(model, mix), resolve(hardware)) == []
    assert config.goal_seconds[1] < seconds(used)


def test_the_command_of_the_seven_cards_splits_up_from_gate_and_is_fixed() -> None:
    """8.7 t/s against 1.6 with such layers (ik issue 521)."""
    used = case(SEVEN_CARDS_COMMAND, "ik_llama.cpp", "DeepSeek-R1-0528", R1_UD_Q3_K_XL, SEVEN_CARDS)
    found = {finding.rule: finding for finding in findings(used)}
    assert "35" in found["up-gate-apart"].message
    assert found["up-gate-apart"].fix


@pytest.mark.parametrize("model", some_of(["GLM-4.5-Air", "GLM-4.6"], 2))
def test_one_24_gb_card_and_128_gb_of_ram_with_glm_4(model: str) -> None:
    hardware = rigs.ONE_3090_DESKTOP
    body = ask(model, "q4_k_m", "iq4_xs", "q2_k", hardware=hardware)
    config = first(body)
    assert config.strategy == "FFN in RAM"
    assert attention_on_gpus(config, hardware, model)
    assert all(row.fits for row in config.devices)
    assert max(free_on_cards(config)) < 2_048


def test_two_sockets_without_gpu_are_bound_to_one_that_holds_the_model() -> None:
    """ik discussion 396: 40 t/s bound, 27 over both; pull request 612: Kimi-K2 on one of two EPYC 9965."""
    config = first(ask("Qwen3-235B-A22B", "q4_k_m", hardware=rigs.TWO_EPYC_NO_GPU))
    assert config.strategy == "CPU only"
    assert config.commands.server.startswith("numactl -N 0 -m 0 llama-server")
    assert "--numa numactl" in config.commands.server
    assert "numa-bound" in [reason.rule for reason in config.reasons]


@pytest.mark.full
def test_what_is_larger_in_ram_than_one_socket_is_spread_over_both() -> None:
    """Weights alone decide at first; with whole layers in RAM their cache lies there too."""
    cards = [Gpu(name="CMP 50HX", free_gib=4.89), Gpu(name="RTX 4090")]
    cpu, ram = Cpu(model="Xeon Platinum 8480+", sockets=2), Ram(total_gb=32, type="DDR5", channels=16, mts=4800)
    hardware, goal = Hardware(gpus=cards, cpu=cpu, ram=ram), GoalRequest(preset="fastest", context=100_000)
    body = ask("Command-R-35B", "q2_K", hardware=hardware, goal=goal)
    assert body.configs
    for config in body.configs:
        assert config.devices[-1].total_mib <= 16 * 1024 or "-m 0 " not in config.commands.server


@pytest.mark.parametrize(("nodes", "bound"), [(2, "0"), (8, "0-3"), (24, "0-11")])
def test_a_command_is_bound_to_all_nodes_of_a_divided_socket(nodes: int, bound: str) -> None:
    """numactl takes no memory from nodes that `-m` does not name: node 0 of NPS4 has a quarter of a socket's."""
    cpu = Cpu(model="EPYC 9355", sockets=2, physical_cores=64, numa_nodes=nodes)
    config = first(ask("Qwen3-235B-A22B", "q4_k_m", hardware=msgspec.structs.replace(rigs.TWO_EPYC_NO_GPU, cpu=cpu)))
    assert config.commands.server.startswith(f"numactl -N {bound} -m {bound} llama-server")
    (reason,) = [reason for reason in config.reasons if reason.rule == "numa-bound"]
    assert "NPS4" not in reason.text


def test_sockets_that_are_one_node_are_not_bound() -> None:
    """As firmware that interleaves the sockets (NPS0) and most virtual machines have it."""
    cpu = Cpu(model="EPYC 9355", sockets=2, physical_cores=64, numa_nodes=1)
    hardware = msgspec.structs.replace(rigs.TWO_EPYC_NO_GPU, cpu=cpu)
    server = first(ask("Qwen3-235B-A22B", "q4_k_m", hardware=hardware)).commands.server
    assert "numa" not in server
    assert f"-t {resolve(hardware).physical_cores}" in server


def test_a_mac_has_one_pool_and_no_overrides() -> None:
    body = ask("Qwen3-235B-A22B", "q4_k_m", hardware=rigs.MAC_STUDIO)
    config = first(body)
    assert config.engine == "llama.cpp"
    assert config.strategy == "all on GPU"
    assert config.flags.overrides == ()
    assert any(refusal.engine == "ik_llama.cpp" for refusal in body.refused)


@pytest.mark.parametrize(
    ("model", "hardware", "goal", "engine", "tg"),
    [
        ("Qwen3-32B", SMALL_CARD, GoalRequest(context=65536, depth=30000, prompt=8000), "llama.cpp", 1.6),
        pytest.param(
            *("Qwen3-32B", SMALL_CARD, GoalRequest(context=65536, depth=30000, prompt=8000), "ik_llama.cpp", 2.6),
            marks=pytest.mark.full,
        ),
        pytest.param(
            *("Llama-3.3-70B", rigs.ONE_3090_DESKTOP, GoalRequest(preset="long"), "llama.cpp", 0.8),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_dense_model_with_a_large_cache_leaves_ffn_in_ram_before_whole_layers(
    model: str, hardware: Hardware, goal: GoalRequest, engine: Engine, tg: float
) -> None:
    """The cache stays on the card as far as it fits: -ngl alone gave 0.8, 1.9 and 0.5 t/s."""
    config = first(ask(model, "q4_k_m", hardware=hardware, goal=goal, engine=engine))
    assert config.strategy == "layers in RAM"
    assert config.speed[-1].tg_tps >= tg
    assert problems_of(config, build(model, "q4_k_m"), resolve(hardware)) == []


@pytest.mark.full
def test_a_laptop_card_of_6_gb_holds_attention_and_leaves_experts_in_ram() -> None:
    config = first(ask("Qwen3-30B-A3B", "q4_k_m", hardware=rigs.LAPTOP_6GB))
    assert config.strategy == "FFN in RAM"
    assert attention_on_gpus(config, rigs.LAPTOP_6GB, "Qwen3-30B-A3B")
    assert 0 < placed_layers(config, rigs.LAPTOP_6GB, "Qwen3-30B-A3B")["CPU"] < 48
