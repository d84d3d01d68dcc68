"""Models whose experts neither RAM nor the GPUs hold: advised from a drive, and said so."""

from __future__ import annotations

import re

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.goal import GoalRequest
from service.engine.hardware_text import parse_hardware
from tests.engine.planner.asking import ask
from tests.models import build

R1 = "DeepSeek-R1-0528"
R1_MIX = "ffn_down_exps=iq2_xxs,exps=iq1_s,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K"
LARGER = "ffn_down_exps=iq3_xxs,exps=iq2_xxs,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K"
R1_DESKTOP = parse_hardware("RTX 4090, i9-14900K, 128GB DDR5-5200")


def test_experts_beyond_ram_and_vram_are_advised_from_a_drive_and_the_answer_says_so_first() -> None:
    body = ask(R1, LARGER, hardware=R1_DESKTOP)
    assert body.headline.startswith(f"Only slowly, from a drive: {LARGER} with llama.cpp, about ")
    assert "Without the drive, nothing here fits. " in body.headline
    assert body.refused == [], "what runs from a drive is not refused as well"
    (config,) = body.configs
    assert config.strategy == "experts from a drive"
    assert config.pick is not None
    assert config.pick.name == "balanced"
    assert " -ncmoe " in config.commands.server
    assert " -cram 0" in config.commands.server, "the system's cache of the file needs what RAM is left"
    assert "-lm none" not in config.commands.server, "the file stays mapped"
    assert all(row.fits for row in config.devices[:-1])
    assert not config.devices[-1].fits
    assert any("an NVMe drive that reads 7 GB/s" in note for note in config.notes)


def test_what_is_read_from_a_drive_is_the_share_of_the_experts_that_ram_cannot_keep() -> None:
    (config,) = ask(R1, LARGER, hardware=R1_DESKTOP).configs
    said = next(reason.text for reason in config.reasons if reason.rule == "experts-from-drive")
    found = re.search(r"(\d+) GiB of the experts do not fit in RAM: each token reads about (\S+) GiB", said)
    assert found, said
    beyond, a_token = map(float, found.groups())
    assert a_token == pytest.approx(beyond * 8 / 256, abs=0.1)
    reading = config.token_ms["reading the drive"]
    assert reading == pytest.approx(1000 * a_token * 2**30 / 7e9, rel=0.05)
    at = config.speed[-1]
    assert 1000 / at.tg_tps == pytest.approx(sum(config.token_ms.values()), rel=0.02)
    assert at.tg_high < 1000 / (reading / 1.5)


def test_experts_come_from_a_drive_without_a_gpu_too() -> None:
    body = ask(R1, LARGER, hardware=msgspec.structs.replace(R1_DESKTOP, gpus=[]))
    assert body.headline.startswith("Only slowly, from a drive: ")
    (config,) = body.configs
    assert [row.device for row in config.devices] == ["CPU"]
    assert any("no GPU is used: weights are memory-mapped" in reason.text for reason in config.reasons)


def test_several_cards_with_experts_from_a_drive_get_shares_of_their_own() -> None:
    body = ask(R1, LARGER, hardware=parse_hardware("RTX 4090 + RTX 3060, i9-14900K, 128GB DDR5-5200"))
    (config,) = body.configs
    assert config.strategy == "experts from a drive"
    assert " -ts " in config.commands.server


def test_of_several_variants_from_a_drive_the_best_trade_comes_first_and_the_others_follow() -> None:
    balanced, better = ask(R1, R1_MIX, LARGER, hardware=R1_DESKTOP).configs
    assert (balanced.variant, better.variant) == (R1_MIX, LARGER), "as people run it: questions o62 and u21"
    assert (balanced.rank, better.rank) == (1, 2)
    assert balanced.speed[-1].tg_tps > better.speed[-1].tg_tps, "RAM lacks less of it"


@pytest.mark.full
def test_of_many_variants_from_a_drive_the_fastest_is_shown_too() -> None:
    configs = ask(R1, R1_MIX, LARGER, "iq3_xxs", "q3_k_m", "iq4_xs", hardware=R1_DESKTOP).configs
    assert len(configs) == 4
    assert R1_MIX in {config.variant for config in configs}, "what RAM nearly holds is three times as fast"


def test_the_check_of_a_config_from_a_drive_gives_its_speed_and_says_that_it_runs_from_the_drive() -> None:
    body = ask(R1, LARGER, hardware=R1_DESKTOP)
    (config,) = body.configs
    report = check(config.commands.server, "llama.cpp", build(R1, LARGER), resolve(R1_DESKTOP))
    assert report.verdict.startswith("Runs from the drive: ")
    assert not [one.rule for one in report.findings if one.severity == "error"]
    assert any("GiB per token, which the speeds include" in one.message for one in report.findings)
    at = next(point for point in report.speed if point.n_kv == 4096)
    assert at.tg_tps == pytest.approx(config.speed[-1].tg_tps, rel=0.02)


def test_a_machine_whose_cards_cannot_hold_attention_and_cache_is_advised_nothing_from_a_drive() -> None:
    small = parse_hardware("RTX 3060 12GB, Ryzen 5 5600, 16GB DDR4-3200")
    body = ask(R1, R1_MIX, hardware=small)
    assert body.headline.startswith("No: nothing here fits. ")
    assert not body.configs


def test_prompts_are_computed_on_the_cpu_where_copying_experts_over_the_link_would_lose() -> None:
    """137 GB of experts over 16 GB/s, for each micro-batch: a weak card with a fast server CPU."""
    hardware = parse_hardware("GTX 1660 Ti, EPYC 9355, 128GB DDR5-6400")
    goal = GoalRequest(preset="fastest", context=4096)
    (config,) = ask("MiMo-V2-Flash", "q3_k_m", hardware=hardware, goal=goal).configs
    assert config.strategy == "experts from a drive"
    assert " --no-op-offload " in config.commands.server
    checked = check(config.commands.server, config.engine, build("MiMo-V2-Flash", "q3_k_m"), resolve(hardware))
    assert {"copying-loses", "copying-off"}.isdisjoint(finding.rule for finding in checked.findings)


def test_check_does_not_ask_for_copies_that_would_make_prompts_from_a_drive_slower() -> None:
    """RAM was too short, so a change was taken for a help whatever its speed."""
    hardware = parse_hardware("RTX 4090, i9-14900K, 128GB DDR5-5200")
    (config,) = ask(R1, LARGER, hardware=hardware).configs
    slower, model = config.commands.server.replace(" --no-op-offload", ""), build(R1, LARGER)
    faster = slower + " --no-op-offload"
    pp = {c: check(c, "llama.cpp", model, resolve(hardware)).speed[0].pp_tps for c in (slower, faster)}
    rules = {finding.rule for finding in check(faster, "llama.cpp", model, resolve(hardware)).findings}
    assert ("copying-off" in rules) == (pp[slower] > 1.05 * pp[faster])
