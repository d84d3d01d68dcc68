"""What an answer proposes beside its configs, with complete commands: drafts, and an expert cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from service.engine.advice import AdviceBody, Proposal
from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.planner.explaining.proposals import CACHE, DENSE, MIXTURE, ONE_TOKEN
from service.engine.units import MIB
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.models import build

DRAFTING = Path(__file__).parents[2] / "data" / "drafting.jsonl"
ONE_4090 = "RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000"
OCTOBER = Constraints(engines=[EngineChoice("llama.cpp", "b11500")])
CACHE_MACHINE = "RTX 3080 10GB, Ryzen 7 5800X, 64GB DDR4-3200"


def proposed(body: AdviceBody, name: Literal["drafting", "expert-cache"]) -> Proposal:
    (found,) = [p for c in body.configs for p in c.proposals if p.name == name]
    return found


def gains(kind: str, drafted: set[int]) -> list[float]:
    pairs = [json.loads(line) for line in DRAFTING.read_text().splitlines()]
    like = [p for p in pairs if (p["kind"], p["weights"], p["backend"]) == (kind, "gpu", "other")]
    return [p["with_drafts"] / p["without"] for p in like if p["drafted"] in drafted]


@pytest.mark.parametrize(("engine", "times"), [("llama.cpp", DENSE), ("ik_llama.cpp", ONE_TOKEN)])
def test_drafts_are_a_complete_command_that_fits_as_check_predicts_and_never_the_config_itself(
    engine: Engine, times: tuple[float, float]
) -> None:
    machine = parse_hardware(ONE_4090)
    body = ask("Qwen3.5-27B", "q4_K_M", hardware=machine, engine=engine)
    config, found = first(body), proposed(body, "drafting")
    assert found in config.proposals
    assert "--spec-type" in found.server
    assert "--spec-type" in found.powershell
    assert not [c for c in body.configs if "--spec-type" in c.commands.server]
    result = check(found.server, engine, build("Qwen3.5-27B", "q4_K_M"), rig := resolve(machine))
    assert result.fits
    assert result.memory.devices[0].free_mib >= rig.cards[0].reserve / MIB
    assert [d.total_mib for d in result.memory.devices] == [d.total_mib for d in found.devices]
    assert found.devices[0].companions_mib > 0
    assert found.times == times
    assert found.tg_tps == pytest.approx([t * config.speed[-1].tg_tps for t in times], rel=0.01)
    assert "not measured on this machine" in found.basis


def test_where_drafts_have_no_room_a_smaller_micro_batch_makes_some() -> None:
    body = ask("Qwen3.5-27B", "q4_K_M", hardware=parse_hardware(ONE_4090), engine="ik_llama.cpp")
    found = proposed(body, "drafting")
    assert first(body).flags.n_ubatch > 1024
    assert " -ub 1024 " in found.server
    assert "its smaller -ub makes room for the drafts" in found.basis


def test_the_published_gains_of_drafting_lie_in_the_intervals_that_are_shown() -> None:
    low, high = DENSE
    dense = gains("dense", {2, 3, 4, 6, 12})
    assert len(dense) >= 50
    assert 0.8 <= sum(low <= gain <= high for gain in dense) / len(dense) <= 0.9
    assert all(ONE_TOKEN[0] < gain < ONE_TOKEN[1] + 0.05 for gain in gains("dense", {1}))
    assert all(MIXTURE[0] < gain < MIXTURE[1] + 0.05 for gain in gains("mixture", {2, 4}))


@pytest.mark.parametrize(
    ("machine", "parallel", "said"),
    [("M2 Ultra 192GB", 1, "on Apple GPUs"), ("RTX 5090, Ryzen 9 9950X, 64GB DDR5-6000", 4, "with four or more")],
)
def test_next_token_layers_are_left_out_where_published_runs_gained_nothing(
    machine: str, parallel: int, said: str
) -> None:
    goal = GoalRequest(parallel=parallel)
    config = first(ask("Qwen3.5-27B", "q4_K_M", hardware=parse_hardware(machine), goal=goal, engine="llama.cpp"))
    (reason,) = [r for r in config.reasons if r.rule.startswith("drafting")]
    assert reason.rule == "drafting-left-out"
    assert said in reason.text
    assert not config.proposals


@pytest.mark.full
def test_next_token_layers_are_left_out_with_weights_in_ram_and_the_reason_says_what_others_measured() -> None:
    config = first(ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp"))
    (said,) = [r.text for r in config.reasons if r.rule.startswith("drafting")]
    assert "in published runs with weights in RAM, drafting with them gave 0.6 to 1.3 times" in said
    assert not config.proposals
    plain = first(ask("Qwen3-235B-A22B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp"))
    assert not [r for r in plain.reasons if r.rule.startswith("drafting")], "a file without such layers"


def cached(hardware: str, constraints: Constraints | None) -> AdviceBody:
    return ask("Qwen3-30B-A3B", "q4_k_m", hardware=parse_hardware(hardware), constraints=constraints)


def test_an_expert_cache_is_proposed_for_a_build_that_has_it_and_is_the_largest_that_check_says_fits() -> None:
    body = cached(CACHE_MACHINE, OCTOBER)
    found = proposed(body, "expert-cache")
    assert not [c for c in body.configs if "--moe-cache-mib" in c.commands.server]
    assert " -cmoe " in found.server
    assert found.times == CACHE
    size = int(found.server.split("--moe-cache-mib ")[1].split()[0])
    model, rig = build("Qwen3-30B-A3B", "q4_k_m"), resolve(parse_hardware(CACHE_MACHINE))
    larger_line = found.server.replace(f"--moe-cache-mib {size}", f"--moe-cache-mib {size + 1024}")
    largest, larger = (check(line, "llama.cpp", model, rig) for line in (found.server, larger_line))
    assert largest.fits
    assert largest.memory.devices[0].free_mib >= rig.cards[0].reserve / MIB
    assert [d.total_mib for d in largest.memory.devices] == [d.total_mib for d in found.devices]
    assert not larger.fits


@pytest.mark.full
def test_an_expert_cache_needs_a_build_that_has_it_and_is_advised_against_over_a_slow_link() -> None:
    assert not [p for c in cached(CACHE_MACHINE, None).configs for p in c.proposals]
    slow = cached(CACHE_MACHINE.replace("10GB", "10GB PCIe 3.0 x4"), OCTOBER)
    assert not [p for c in slow.configs for p in c.proposals]
    assert [r.text for c in slow.configs for r in c.reasons if r.rule == "expert-cache-left-out"]


def test_where_gpu_and_cpu_share_the_ram_what_a_proposal_takes_for_the_gpu_is_not_free_for_the_cpu() -> None:
    halo = parse_hardware("Ryzen AI Max+ 395, 128GB, Ubuntu 25.10")
    body = ask("GLM-4.5-Air", "iq4_xs", hardware=halo, engine="llama.cpp")
    checked = check(first(body).commands.server, "llama.cpp", build("GLM-4.5-Air", "iq4_xs"), resolve(halo))
    assert checked.memory.devices[-1].free_mib == first(body).devices[-1].free_mib
    gpu, cpu = proposed(body, "drafting").devices
    assert cpu.free_mib == pytest.approx(cpu.capacity_mib - cpu.total_mib - gpu.total_mib, abs=0.1)
