"""Answers as people read them: one screen, and no foreign text that does more than be read."""

from __future__ import annotations

import re
from functools import cache

import pytest
from msgspec.structs import replace

from service.engine.advice import AdviceBody, Gain, SpeedPoint, Upgraded, WhatIf
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.wire.advice.advice import Advice
from service.wire.advice.text import HEIGHT, device_table, render_markdown, render_text
from service.wire.advice.what_if_text import what_if_lines
from service.wire.plain_text import WIDTH, clean, wrapped
from service.wire.problem import problem
from tests import rigs
from tests.engine.planner.asking import ask

HOSTILE = "x\x1b[31m<script>@everyone```\u202eevil\u200b`**"


@cache
def body() -> AdviceBody:
    return ask("Qwen3-235B-A22B", "q4_K_M", "q2_K", "q8_0", hardware=rigs.ONE_3090_DESKTOP)


def advice(repo: str = "someone/Qwen3-235B-A22B-GGUF") -> Advice:
    return advice_of(body(), repo)


def advice_of(found: AdviceBody, repo: str = "someone/some-GGUF") -> Advice:
    known = {name: getattr(found, name) for name in found.__struct_fields__}
    return Advice(id="x", state="ready", repo=repo, revision="0" * 40, url="http://127.0.0.1:8000/v1/advice/x", **known)


def test_the_short_form_fits_one_screen() -> None:
    lines = render_text(advice()).splitlines()
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH


def test_long_names_cost_neither_the_context_nor_a_speed() -> None:
    for owner in ("unsloth", "somebody-with-a-long-name"):
        text = " ".join(render_text(advice(f"{owner}/Qwen3-235B-A22B-Instruct-2507-GGUF")).split())
        assert "1,000 + 400 tokens at 4,000, context 16,384" in text
    long = [replace(config, variant="UD-IQ3_XXS-with-a-long-name") for config in advice().configs]
    others = [line for line in render_text(replace(advice(), configs=long)).splitlines() if line.startswith("#")][1:]
    assert others
    assert all(", PP " in line and len(line) <= WIDTH for line in others)


@cache
def batch() -> Advice:
    """Eight requests at once, of a model that fits the card whole."""
    goal, mixes = GoalRequest(preset="batch", parallel=8), ("q4_K_M", "q5_K_M", "q6_K", "q8_0")
    hardware = parse_hardware("RTX 3090, Ryzen 7 5800X, 32GB DDR4")
    return advice_of(ask("Qwen3-8B", *mixes, hardware=hardware, goal=goal))


@pytest.mark.full
def test_configs_for_several_requests_at_once_are_compared_by_the_speed_of_all_of_them() -> None:
    text = render_text(batch())
    assert len(batch().configs) > 3
    for config in batch().configs:
        assert config.at_once is not None
        total, each = f"{config.at_once.tps:,.0f}", f"{config.at_once.each:,.1f} each"
        if config.rank == 1:
            assert f"! 8 concurrent requests: about {total} t/s in total (" in text
            assert f", {total} in total, " in " ".join(text.split())
        else:
            (line,) = [line for line in text.splitlines() if re.match(rf"#{config.rank}\D", line)]
            assert f": 8 at once {total} t/s" in line
            assert f"{each}, PP " in line or f"{each}; one alone TG " in line
            assert f": 8 at once {total} t/s" in render_markdown(batch())
    assert "! other speeds are for one request at a time" in text.splitlines()
    assert "…" not in text  # as long as the screen has room for what was cut
    assert len(text.splitlines()) <= HEIGHT


def test_a_line_without_room_for_all_leaves_out_the_bits_and_not_the_speed() -> None:
    found = [replace(config, variant="UD-IQ3_XXS-with-a-long-name") for config in batch().configs]
    lines = [line for line in render_text(replace(batch(), configs=found)).splitlines() if line.startswith("#")][1:]
    assert lines
    assert all(len(line) <= WIDTH and " each" in line and "8 at once " in line for line in lines)


def test_the_first_sentence_says_whether_it_runs_how_fast_and_with_how_much_memory() -> None:
    sentence = " ".join(" ".join(render_text(advice()).splitlines()[:3]).split())
    for part in ("t/s", "GiB", "on the GPU", "in RAM"):
        assert part in sentence


def test_a_thousand_tokens_a_second_have_a_comma_everywhere() -> None:
    hardware, engines = parse_hardware("B200, EPYC 9755, 512GB DDR5-6000"), [EngineChoice("ik_llama.cpp")]
    fast = ask("Qwen3-0.6B", "q4_K_M", "q8_0", hardware=hardware, constraints=Constraints(engines=engines))
    text = render_text(advice_of(fast), "full")
    assert re.search(r"\d,\d{3}\.\d\) after", text)
    assert not re.search(r"(?<![\w.])\d{4,}\.\d", text)


def test_what_is_damaged_is_said_first_and_by_how_much_with_a_comma() -> None:
    found = ask("Qwen3-8B", "iq1_s", "q8_0", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="fastest"))
    text = " ".join(render_text(advice_of(found)).split())
    assert text.startswith("It fits, but quantisation has damaged this variant: iq1_s ")
    _, expected, high = found.configs[0].loss_percent or (0.0, 0.0, 0.0)
    assert high >= 1000
    assert f"perplexity about {expected:,.0f} % (" in text
    assert f" to {high:,.0f}) above 16-bit" in text
    assert f" to {high:,.1f}), by tensor types" in text


def test_what_intervals_rest_on_is_said_in_words() -> None:
    configs = [replace(c, speed=[replace(p, basis="formula") for p in c.speed], deeper=[]) for c in body().configs]
    uncalibrated = "80 % intervals, from a formula, not calibrated"
    assert uncalibrated in render_text(replace(advice(), configs=configs)).splitlines()
    assert uncalibrated in render_markdown(replace(advice(), configs=configs))
    assert re.search(r"80 % intervals, calibrated on \d+ published runs\n", render_text(advice()))


def test_the_full_form_has_every_config_with_both_commands_and_every_reason() -> None:
    text = render_text(advice(), "full")
    for config in advice().configs:
        assert f"#{config.rank} {config.variant}, {config.engine}" in text
        assert all(f"[{reason.rule}]" in text for reason in config.reasons)
    assert "llama-sweep-bench" in text
    assert "llama-bench" in text


@pytest.mark.full
def test_why_the_benchmark_differs_is_said_with_the_benchmark_alone() -> None:
    machine = parse_hardware("RTX 3080 10GB, Ryzen 7 5800X3D, 32GB DDR4-3200")
    found = advice_of(ask("Qwen3-14B", "iq4_xs", hardware=machine, engine="llama.cpp"))
    assert "its benchmark has" not in render_text(found)
    full = render_text(found, "full")
    assert full.index("llama-bench") < full.index("- its benchmark has -ub") < full.index("# build the engine")
    assert full.count("[smaller-benchmark]") == len([c for c in found.configs if c.smaller_benchmark])


@pytest.mark.full
def test_the_largest_gain_there_is_fits_a_full_screen_too() -> None:
    hardware = parse_hardware("RX 7900 XTX, Ryzen 7 7800X3D, 32GB DDR5-6000")
    mixes = ("iq4_xs", "q5_K_M", "q2_K", "q3_K_M", "q4_K_M", "q6_K", "q8_0")
    found = advice_of(ask("Qwen3.5-27B", *mixes, hardware=hardware, goal=GoalRequest(preset="agent")))
    assert found.configs[0].proposals
    lines = render_text(found).splitlines()
    assert len(lines) <= HEIGHT
    assert any("worth measuring: drafting" in line for line in lines)


def test_a_proposal_is_a_line_in_the_short_form_and_a_whole_command_with_its_memory_in_the_full_one() -> None:
    machine = parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000")
    found = ask("Qwen3.5-27B", "q4_K_M", hardware=machine, engine="llama.cpp")
    proposed = advice_of(found)
    (proposal,) = found.configs[0].proposals
    short, full = (" ".join(render_text(proposed, detail).split()) for detail in ("short", "full"))
    assert "worth measuring: drafting with the file's next-token layers (MTP), 1.4 to 2.2 times" in short
    assert "--spec-type" not in short
    assert "; see detail=full" in short
    assert "; see --detail full" in " ".join(render_text(proposed, more="--detail full").split())  # at the command line
    assert proposal.basis in full
    assert "--spec-type draft-mtp --spec-draft-n-max 3" in full.replace("\\ ", "")
    assert f"{proposal.devices[0].total_mib:,.0f}" in full


def test_markdown_has_the_commands_in_a_block_of_their_own() -> None:
    text = render_markdown(advice())
    assert "```bash\nhf download" in text
    assert text.count("```") % 2 == 0


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_foreign_names_keep_no_control_or_direction_characters(render: object) -> None:
    config = replace(advice().configs[0], variant=HOSTILE)
    text = render(replace(advice(HOSTILE), configs=[config], headline=HOSTILE))  # type: ignore[operator]
    assert not {"\x1b", "\u202e", "\u200b"} & set(text)


def test_foreign_names_cannot_leave_a_code_block_or_call_everyone() -> None:
    config = replace(advice().configs[0], variant=HOSTILE)
    text = render_markdown(replace(advice(), configs=[config, replace(config, rank=2)], headline=HOSTILE))
    outside = "".join(text.split("```")[::2])
    assert "@everyone" not in outside
    assert "<script>" not in outside.replace("\\<", "")
    assert text.count("```") % 2 == 0


def test_a_number_and_its_percent_sign_stay_on_one_line() -> None:
    for n_words in range(40):
        lines = wrapped("word " * n_words + "about 3.2 % above 16-bit, " * 8)
        assert not any(line.endswith("3.2") for line in lines)
        assert max(map(len, lines)) <= WIDTH


def test_clean_keeps_ordinary_text_of_any_script() -> None:
    assert clean("Größe 模型 × 2\n") == "Größe 模型 × 2\n"


def test_what_is_not_ready_says_where_it_is() -> None:
    waiting = Advice(
        id="x", state="running", repo="a/b", revision=None, hardware=body().hardware, goal=None, progress="planning"
    )
    assert render_text(waiting) == "running: planning\n"
    failed = replace(waiting, state="failed", problem=problem("repo-gated", "accept its terms"))
    assert render_text(failed) == "No advice. The repo is gated: accept its terms\n"
    assert "gated" in render_markdown(failed)


TWO_3090 = parse_hardware("2x RTX 3090, Ryzen 9 7950X, 128GB DDR5-5200")


def beside_a_command(command: str) -> Advice:
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=command)
    known = ask("Qwen3-235B-A22B", "q2_K", hardware=TWO_3090, constraints=limits)
    fields = {name: getattr(known, name) for name in known.__struct_fields__}
    return Advice(id="x", state="ready", repo="someone/Qwen3-235B-A22B-GGUF", revision="0" * 40, **fields)


COMMAND = "llama-server -m Qwen3-235B-A22B-q2_K.gguf -c 16384 -ngl 99 -ot exps=CPU -ctk q8_0 -ctv q8_0 -t 16"


def test_what_the_first_config_gains_on_the_command_in_use_fits_the_screen() -> None:
    lines = render_text(beside_a_command(COMMAND)).splitlines()
    assert len(lines) <= HEIGHT
    assert any(line.startswith("yours: q2_K llama.cpp, TG ") for line in lines)
    assert any(line.startswith("#1 against yours: GPUs +") for line in lines)
    assert any("-ub 512 -> " in line and "PP +" in line for line in lines)
    assert any("-ot: 1 rule -> " in line and "TG +" in line for line in lines)


def test_changes_that_are_left_out_are_not_said_to_change_the_memory_less() -> None:
    """They are chosen by speed: a shorter context may free more than any of those shown."""
    mine = beside_a_command(COMMAND)
    text = render_text(mine)
    versus = mine.configs[0].versus_mine
    assert versus is not None
    assert f"  and {len(versus.changes) - 4} more, which change the speed less" in text.splitlines()


def test_an_answer_that_no_screen_holds_says_that_there_is_more() -> None:
    """Not a count of assumptions of which none is shown."""
    notes = [f"note {i}" for i in range(30)]
    configs = [replace(advice().configs[0], notes=notes), *advice().configs[1:]]
    lines = render_text(replace(advice(), configs=configs, url=None)).splitlines()
    assert len(lines) == HEIGHT
    assert lines[-1] == "the rest does not fit a screen: see detail=full"


def test_memory_beside_the_model_is_not_said_to_be_of_what_there_is_none() -> None:
    devices = [replace(one, companions_mib=930.0) for one in advice().configs[0].devices]
    assert device_table(devices)[-1].startswith(
        "totals include what else is loaded (projector, draft model or next-token layers): CUDA0 930"
    )


def test_the_largest_context_is_said_to_be_one_of_the_usual_sizes() -> None:
    assert "largest usual context with this placement: " in render_text(advice(), "full")


def test_the_full_form_says_why_of_every_change_for_every_config() -> None:
    text = render_text(beside_a_command(COMMAND), "full")
    configs = beside_a_command(COMMAND).configs
    assert text.count("against yours: TG ") == len(configs)
    assert "prompt tokens)" in text


def test_markdown_has_the_command_in_use_inside_the_block() -> None:
    before, yours, _ = render_markdown(beside_a_command(COMMAND)).partition("```\nyours: q2_K")
    assert yours
    assert before.count("```") % 2 == 0


@pytest.mark.full
def test_words_of_a_strange_command_cannot_leave_the_block() -> None:
    advice = beside_a_command(COMMAND + " --lora '```@everyone\x1b[31m'")
    for text in (render_text(advice, "full"), render_markdown(advice)):
        assert "\x1b" not in text
    assert render_markdown(advice).count("```") % 2 == 0


def what_if(*asked: str) -> AdviceBody:
    return ask("Qwen3-235B-A22B", "q2_K", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp", what_if=asked)


@pytest.mark.full
def test_answers_about_other_hardware_stand_before_the_config_and_fit_the_screen() -> None:
    body = what_if("+1 RTX 5090", "best", "no GPU")
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    advice = Advice(id="x", state="ready", repo="a/b", revision=None, url="http://127.0.0.1/x", **fields)
    lines = render_text(advice).splitlines()
    assert len(lines) <= HEIGHT
    assert lines[-1] == "http://127.0.0.1/x?detail=full"
    asked = [i for i, line in enumerate(lines) if line.startswith("what if: ")]
    assert len(asked) == 3
    assert all(answer.text in " ".join(" ".join(lines).split()) for answer in body.what_if), "answers are not cut"
    assert max(asked) < next(i for i, line in enumerate(lines) if line.startswith("#1 "))
    assert "tried: " in render_text(advice, "full")
    assert "what if: no GPU" in render_markdown(advice)


@pytest.mark.parametrize("detail", ["short", "full"])
def test_the_page_of_an_advice_is_named_with_the_address_of_the_api(detail: str) -> None:
    url = "https://advisor.example/v1/advice/abc"
    answered = replace(advice(), url=url)
    more = "?detail=full" if detail == "short" else ""
    page = "page: https://advisor.example/advice/abc"
    assert render_text(answered, detail).splitlines()[-2:] == [page, f"{url}{more}"]
    assert render_markdown(answered, detail).endswith(f"{page}\n\n{url}\n")
    assert "page: " not in render_text(replace(advice(), url="https://advisor.example/advice/abc"), detail)


@pytest.mark.full
def test_the_gain_of_an_upgrade_that_was_asked_about_is_shown_once() -> None:
    body = what_if("+1 RTX 3090", "best")
    asked, best = body.what_if
    assert best.upgrades[0].change == "+1 NVIDIA GeForce RTX 3090"
    lines = list(what_if_lines(body.what_if, full=False))
    assert sum("TG " in line for line in lines if "RTX 3090" in line) == 1
    saved = f"{best.upgrades[0].seconds_saved:.1f} s"
    assert lines[:2] == [f"what if: {asked.text}", f"what if: best: {best.upgrades[0].change} (GPU): saves {saved}"]
    assert next(what_if_lines([best], full=False)) == f"what if: {best.text}"


def test_an_upgrade_that_takes_longer_saves_no_negative_time() -> None:
    slower = Gain(tps=-1.0, times=0.9, low=0.8, high=1.0, called=True)
    point = SpeedPoint(n_kv=0, tg_tps=9.0, tg_low=8.0, tg_high=10.0, pp_tps=90.0, pp_low=80.0, pp_high=100.0, basis="")
    one = Upgraded(
        change="+64 GB", component="RAM", hardware="", vram_gib=0, ram_gib=64, speed=point, tg=slower, pp=slower,
        seconds_saved=-2.5,
    )  # fmt: skip
    shown = "\n".join(what_if_lines([WhatIf(asked="best", text="", upgrades=[one, one], restricted="")], full=False))
    assert "takes 2.5 s more" in shown
    assert "saves" not in shown
