"""What an answer proposes beside its configs: drafting, an expert cache, a measurement, idle cards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.engine.catalogue import resolve
from service.engine.check import check
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.planner.explaining.hints import DENSE
from service.engine.units import MIB
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.models import build

DRAFTING = Path(__file__).parents[2] / "data" / "drafting.jsonl"
OCTOBER = Constraints(engines=[EngineChoice("llama.cpp", "b11500")])
CACHE_MACHINE = "RTX 3080 10GB, Ryzen 7 5800X, 64GB DDR4-3200"


def test_an_uncertain_answer_says_what_measuring_it_would_give_and_a_certain_one_does_not() -> None:
    small = parse_hardware("RTX 3060, Ryzen 5 5600, 64GB DDR4-3200")
    config = first(ask("Qwen3-30B-A3B", "q8_0", hardware=small))
    at, (said,) = config.speed[-1], [r.text for r in config.reasons if r.rule == "worth-measuring"]
    minutes, low, high = map(float, re.findall(r"about (\d+) minutes? once .* within (\S+) to (\S+) if", said)[0])
    assert at.tg_low < low < at.tg_tps < high < at.tg_high
    assert (high / low) < (at.tg_high / at.tg_low) ** 0.85
    least = config.flags.n_ctx / max(p.pp_tps for p in config.speed) / 60
    assert least < minutes < least + config.flags.n_ctx / 4 / min(p.tg_tps for p in config.deeper) / 60 + 1
    sure = first(ask("Qwen3-30B-A3B", "q4_K_M", hardware=parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000")))
    assert sure.strategy == "all on GPU"
    assert all(reason.rule != "worth-measuring" for reason in sure.reasons)


def test_next_token_layers_are_proposed_where_they_fit_on_cards_with_what_check_predicts_of_them() -> None:
    machine = parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000")
    config = first(ask("Qwen3.5-27B", "q4_K_M", hardware=machine, engine="llama.cpp"))
    said = next(r.text for r in config.reasons if r.rule == "drafting")
    options, more = re.findall(r"try: (--spec-type \S+ --spec-draft-n-max 3) .* up to (\S+) GiB more", said)[0]
    model, rig = build("Qwen3.5-27B", "q4_K_M"), resolve(machine)
    with_it = check(f"{config.commands.server} {options}", "llama.cpp", model, rig)
    assert with_it.fits
    gpu = with_it.memory.devices[0]
    assert (gpu.total_high_mib - config.devices[0].total_high_mib) / 1024 == pytest.approx(float(more), abs=0.06)


def test_the_published_gain_of_drafting_holds_four_of_five_pairs_of_runs_of_dense_models_whole_on_gpus() -> None:
    pairs = [json.loads(line) for line in DRAFTING.read_text().splitlines()]
    like = [p for p in pairs if (p["kind"], p["weights"], p["backend"]) == ("dense", "gpu", "other")]
    gains = [p["with_drafts"] / p["without"] for p in like]
    low, high = DENSE
    assert len({p["source"] for p in like}) >= 30
    assert 0.8 <= sum(low <= gain <= high for gain in gains) / len(gains) <= 0.9


@pytest.mark.parametrize(
    ("machine", "parallel", "said"),
    [
        ("M2 Ultra 192GB", 1, "on Apple's GPUs"),
        ("RTX 5090, Ryzen 9 9950X, 64GB DDR5-6000", 4, "by four requests at once"),
    ],
)
def test_next_token_layers_are_left_out_where_published_runs_gained_nothing(
    machine: str, parallel: int, said: str
) -> None:
    goal = GoalRequest(parallel=parallel)
    config = first(ask("Qwen3.5-27B", "q4_K_M", hardware=parse_hardware(machine), goal=goal, engine="llama.cpp"))
    (reason,) = [r for r in config.reasons if r.rule.startswith("drafting")]
    assert reason.rule == "drafting-left-out"
    assert said in reason.text


def cache_reasons(hardware: str, constraints: Constraints | None) -> list[tuple[int, str]]:
    body = ask("Qwen3-30B-A3B", "q4_k_m", hardware=parse_hardware(hardware), constraints=constraints)
    return [(i, r.text) for i, c in enumerate(body.configs) for r in c.reasons if r.rule == "expert-cache"]


def test_an_expert_cache_is_an_alternative_for_a_build_that_has_it_and_as_large_as_check_says_that_it_fits() -> None:
    ((number, said),) = cache_reasons(CACHE_MACHINE, OCTOBER)
    config = ask("Qwen3-30B-A3B", "q4_k_m", hardware=parse_hardware(CACHE_MACHINE), constraints=OCTOBER).configs[number]
    assert "--moe-cache-mib" not in config.commands.server
    size = int(re.findall(r"-cmoe --moe-cache-mib (\d+) instead", said)[0])
    model, rig = build("Qwen3-30B-A3B", "q4_k_m"), resolve(parse_hardware(CACHE_MACHINE))
    plain = re.sub(r"-ncmoe \d+ ?|-ot \S+ ?", "", config.commands.server)
    largest, larger = (
        check(f"{plain} -cmoe --moe-cache-mib {n}", "llama.cpp", model, rig) for n in (size, size + 1024)
    )
    assert largest.fits
    assert largest.memory.devices[0].free_mib >= rig.cards[0].reserve / MIB
    assert not larger.fits


def test_an_expert_cache_is_not_proposed_without_a_build_that_has_it_nor_over_a_slow_link() -> None:
    assert not cache_reasons(CACHE_MACHINE, None)
    slow = CACHE_MACHINE.replace("10GB", "10GB PCIe 3.0 x4")
    assert not cache_reasons(slow, OCTOBER)


@pytest.mark.parametrize(
    ("machine", "idle"),
    [
        ("2x Tesla P40, 64GB DDR4-2400", "Tesla P40"),
        ("RTX 3090 + RX 6800 16GB, Ryzen 9 5900X, 64GB DDR4-3600", "AMD Radeon RX 6800"),
    ],
)
def test_idle_cards_are_named_with_the_config_that_would_use_them(machine: str, idle: str) -> None:
    body = ask("Qwen3.5-27B", "iq4_xs", "q4_k_m", "q8_0", hardware=parse_hardware(machine))
    (said,) = [r.text for r in first(body).reasons if r.rule == "idle-gpus"]
    assert said.startswith(f"{idle} is idle: ")
    number = int(re.findall(r"#(\d+) \(q8_0\) uses more GPUs", said)[0])
    assert len(body.configs[number - 1].devices) == 3


def test_next_token_layers_are_left_out_with_weights_in_ram_and_the_reason_says_what_others_measured() -> None:
    config = first(ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp"))
    (said,) = [r.text for r in config.reasons if r.rule.startswith("drafting")]
    assert "with weights in RAM, published runs that drafted with them had 0.6 to 1.3 times" in said
    assert "--spec-type" not in config.commands.server
    plain = first(ask("Qwen3-235B-A22B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp"))
    assert not [r for r in plain.reasons if r.rule.startswith("drafting")], "a file without such layers"
