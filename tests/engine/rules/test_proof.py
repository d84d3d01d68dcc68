"""Every fix that is printed, made in the command: the finding goes, nothing runs over, nothing is slower."""

from __future__ import annotations

import random

import pytest

from service.engine.catalogue import resolve
from service.engine.commands import parse
from service.engine.config import Engine
from service.engine.hardware import Hardware
from service.engine.model import Model
from service.engine.rules import Case, all_rules, case_of, findings
from tests.engine.rules.examples import DUAL, FAST_AND_SLOW, FOUR_3090, GLM, IK, LLAMA, R1, SMALL_MOE, TWO_3090
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP

COSTS = {one.id for one in all_rules() if one.costs}
MODELS = [GLM, SMALL_MOE, R1, ("Qwen3-14B", "q4_K_M"), ("Llama-3.3-70B", "q4_K_M")]
RIGS = [ONE_3090_DESKTOP, TWO_3090, FOUR_3090, DUAL, FAST_AND_SLOW]
PIECES: tuple[tuple[str, ...], ...] = (
    ("-c 4096", "-c 32768", "-c 131072"),
    ("-ngl 99", "-ngl 20", "-ngl 99", "-ngl 99"),
    ("", "-ub 512", "-b 4096 -ub 4096", "-ub 8192", "-b 3000"),
    ("", "-ot exps=CPU", "-ot ffn=CPU", "-ot attn=CPU -ot exps=CPU", "-ncmoe 20", "-cmoe"),
    ("", "-ot 'blk\\.[0-9]\\.ffn_up_exps=CPU'", "-ot foo=CPU", "-ot 'blk\\.1.\\.=CUDA0'"),
    ("", "-ctk q8_0 -ctv q8_0", "-ctk q5_0", "-fa off -ctv q8_0", "-nkvo"),
    ("", "-ts 1,1", "-ts 3,1", "-sm none", "-mg 1"),
    ("", "-t 15", "-t 64", "--numa distribute"),
)
OF: dict[Engine, tuple[tuple[str, ...], ...]] = {
    IK: (
        ("", "-rtr", "-op 26,0", "-op 28,0,31,0", "-op 28,0"),
        ("", "-mla 1", "-mla 0", "-amb 64", "-khad", "-ser 4,1", "-cuda graph=0", "-mqkv", "-sm graph", "-ger"),
    ),
    LLAMA: (("", "--no-op-offload", "--no-host"), ("", "-fit off", "-np 1 -fit off", "-ncffn 20")),
}


def written(seed: int) -> tuple[Engine, Model, Hardware, str]:
    """A command that somebody might write, and where it runs."""
    rng = random.Random(seed)
    engine = rng.choice([IK, LLAMA])
    words = [rng.choice(options) for options in (*PIECES, *OF[engine])]
    return engine, build(*rng.choice(MODELS)), rng.choice(RIGS), " ".join(["llama-server", *filter(None, words)])


def case(engine: Engine, model: Model, hardware: Hardware, command: str) -> Case:
    return case_of(parse(command, engine), model, resolve(hardware), command, "cuda")


def wrong(seed: int) -> list[str]:
    """What a printed fix does not do; the fix is written into the line, and the line is read again."""
    engine, model, hardware, command = written(seed)
    before = case(engine, model, hardware, command)
    found = findings(before)
    complaints = []
    for one in found:
        changed = before.changed(one.fix) if one.fix else None
        if changed is None:
            complaints += [f"{one.rule}: {one.gain}, and no change"] if one.gain else []
            continue
        after = case(engine, model, hardware, changed.parsed.words.line)
        about = f"{command} | {one.rule}: {one.fix}"
        again = [f for f in findings(after) if f.rule == one.rule]
        if len(again) >= len([f for f in found if f.rule == one.rule]):
            complaints.append(f"{about}: the finding stays")
        small = {row.device for row in before.table if not row.fits}
        if any(not row.fits and row.device not in small for row in after.table):
            complaints.append(f"{about}: runs over")
        if small or one.severity == "error" or one.rule in COSTS:
            continue
        now, then = before.speed(), after.speed()
        if min(then.pp.expected / now.pp.expected, then.tg.expected / now.tg.expected) < 0.99:
            complaints.append(f"{about}: slower")
    return complaints


@pytest.mark.parametrize("seed", range(8))
def test_a_printed_fix_helps_in_generated_commands(seed: int) -> None:
    assert wrong(seed) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [8, 58])
def test_a_printed_fix_helps_in_a_hundred_generated_commands(first: int) -> None:
    assert [complaint for seed in range(first, first + 50) for complaint in wrong(seed)] == []


def test_a_finding_about_speed_alone_goes_with_its_gain() -> None:
    sparse = "llama-server -c 4096 -ngl 99 -ot exps=CPU -ub 2048 -no-fmoe -ot 'blk\\.[0-9]\\.ffn_up_exps=CUDA0'"
    assert "up-gate-apart" not in [f.rule for f in findings(case(IK, build(*GLM), ONE_3090_DESKTOP, sparse))]


@pytest.mark.parametrize(
    ("seed", "rule", "severity"), [(152, "layers-in-ram", "info"), (33, "layers-in-ram", "warning")]
)
def test_what_wins_on_one_side_as_much_as_it_loses_on_the_other_is_no_warning(
    seed: int, rule: str, severity: str
) -> None:
    found = {one.rule: one for one in findings(case(*written(seed)))}
    assert "not proposed, for it loses too" in found[rule].message
    assert (found[rule].severity, found[rule].fix) == (severity, None)
