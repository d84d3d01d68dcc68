"""Every fix that is printed, made in the command: the finding goes, nothing runs over, nothing is slower."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

import pytest

from service.engine.builds import BuildAsked
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.model import Model
from service.engine.rules.all_rules import all_rules, findings
from service.engine.rules.case import Case, case_of
from tests.engine.rules.examples import DUAL, FAST_AND_SLOW, FOUR_3090, GLM, IK, LLAMA, R1, SMALL_MOE, TWO_3090
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP
from tests.sampling import some_of

RULES = {one.id: one for one in all_rules()}
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


# Further models, machines, words, programs and days.
WIDELY: list[tuple[str, str]] = [
    ("gpt-oss-120b", "exps=mxfp4,*=q8_0"), ("DeepSeek-V2-Lite", "q4_0"), ("Gemma-3-12B", "q4_K_M"),
    ("Qwen3.5-27B", "q4_K_M"), ("Qwen3.5-35B-A3B", "q4_K_M"), ("Kimi-K2-Instruct", "exps=q2_K,*=q6_K"),
]  # fmt: skip
MACHINES = [
    Hardware(gpus=[Gpu(name="Radeon AI PRO R9700", count=2)], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=128)),
    Hardware(gpus=[Gpu(name="Apple M3 Ultra")], ram=Ram(total_gb=256)),
    Hardware(
        gpus=[Gpu(name="RTX 5090", count=2), Gpu(name="RTX 4090")], cpu=Cpu(model="Xeon 8480+"), ram=Ram(total_gb=512)
    ),
    Hardware(gpus=[Gpu(name="RTX 4060")], cpu=Cpu(model="Ryzen 5 7600"), ram=Ram(total_gb=32)),
    Hardware(gpus=[], cpu=Cpu(model="EPYC 9355"), ram=Ram(total_gb=768)),
]
MORE: tuple[tuple[str, ...], ...] = (
    ("", "", "-np 4", "--no-mmap", "--mlock", "-fa on", "-fa off"),
    ("", "", "-fit on", "-dev CUDA0"),
    ("", "", "-ot 'blk\\.(0|1|2)\\.=CPU'", "-ot output=CPU", "-ot token_embd=CUDA0", "-ot shexp=CPU"),
)
PROGRAMS = ("llama-server", "llama-server", "llama-bench", "llama-cli", "llama-perplexity")
DAYS = (None, None, "2025-03-20", "2025-06-15", "2025-12-20", "2026-03-25")


class Written(NamedTuple):
    """A command that somebody might write, and where it runs; `day`: of its build, None: today's."""

    engine: Engine
    model: Model
    hardware: Hardware
    command: str
    day: str | None = None

    @property
    def case(self) -> Case:
        build_asked = BuildAsked(date=self.day) if self.day else None
        parsed = parse(self.command, self.engine, build=build_asked)
        return case_of(parsed, self.model, resolve(self.hardware), self.command, "cuda")


def written(seed: int) -> Written:
    rng = random.Random(seed)
    engine = rng.choice([IK, LLAMA])
    words = [rng.choice(options) for options in (*PIECES, *OF[engine])]
    command = " ".join(["llama-server", *filter(None, words)])
    return Written(engine, build(*rng.choice(MODELS)), rng.choice(RIGS), command)


def written_widely(seed: int) -> Written:
    rng = random.Random(seed)
    engine = rng.choice([IK, LLAMA])
    words = [rng.choice(options) for options in (*PIECES, *OF[engine], *MORE)]
    program = rng.choice(PROGRAMS)
    if program == "llama-bench":
        words = [word for word in words if not word.startswith(("-c ", "-np", "-fit"))] + ["-p 512,2048 -n 128"]
    model, hardware = rng.choice([*MODELS, *WIDELY]), rng.choice([*RIGS, *MACHINES])
    return Written(engine, build(*model), hardware, " ".join([program, *filter(None, words)]), rng.choice(DAYS))


def wrong(one: Written) -> list[str]:
    """What a printed fix does not do; the fix is written into the line, and the line is read again."""
    before = one.case
    complaints = []
    for found in findings(before):
        rule, changed = RULES[found.rule], before.changed(found.fix) if found.fix else None
        if changed is None:
            complaints += [f"{rule.id}: {found.gain}, and no change"] if found.gain else []
            continue
        after = one._replace(command=changed.parsed.words.line).case
        about = f"{one.command} | {rule.id}: {found.fix}"
        if len(list(rule.findings(after))) >= len(list(rule.findings(before))):
            complaints.append(f"{about}: the finding stays")
        complaints += [f"{about}: no {name} in that build" for name in after.lacking - before.lacking]
        small = {row.device for row in before.table if not row.fits}
        if any(not row.fits and row.device not in small for row in after.table):
            complaints.append(f"{about}: runs over")
        if small or found.severity == "error" or rule.costs:
            continue
        now, then = before.speed(), after.speed()
        if min(then.pp.expected / now.pp.expected, then.tg.expected / now.tg.expected) < 0.99:
            complaints.append(f"{about}: slower")
    return complaints


@pytest.mark.parametrize("seed", some_of(range(8), 2))
def test_a_printed_fix_helps_in_generated_commands(seed: int) -> None:
    assert wrong(written(seed)) == []
    assert wrong(written_widely(seed)) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [8, 58])
def test_a_printed_fix_helps_in_two_hundred_generated_commands(first: int) -> None:
    seeds = range(first, first + 50)
    assert [complaint for seed in seeds for complaint in (*wrong(written(seed)), *wrong(written_widely(seed)))] == []


def test_a_finding_about_speed_alone_goes_with_its_gain() -> None:
    sparse = "llama-server -c 4096 -ngl 99 -ot exps=CPU -ub 2048 -no-fmoe -ot 'blk\\.[0-9]\\.ffn_up_exps=CUDA0'"
    assert "up-gate-apart" not in [f.rule for f in findings(Written(IK, build(*GLM), ONE_3090_DESKTOP, sparse).case)]


THREADRIPPER = Hardware(
    gpus=[Gpu(name="RTX 3090", count=4)], cpu=Cpu(model="Threadripper 3970X"), ram=Ram(total_gb=512)
)


@pytest.mark.parametrize(
    "command",
    ["llama-bench -m a.gguf -ngl 7", "llama-server -m a.gguf -c 4096 -ngl 99", "llama-server -c 4096 -ngl 99 -fa on"],
)
def test_a_build_without_overrides_is_offered_none(command: str) -> None:
    one = Written(LLAMA, build("DeepSeek-R1-0528", "q4_K_M"), THREADRIPPER, command, "2025-01-03")
    found = findings(one.case)
    assert not [f for f in found if re.search(r"-ot |-n?cmoe", f"{f.message} {f.fix}")]
    small = [f.fix for f in found if f.rule == "does-not-fit"]
    assert small == (["-ngl 8"] * 4 if "99" in command else [])


@pytest.mark.parametrize(
    ("options", "left_out"),
    [("", ""), ("-ncmoe 55", "leave out -ncmoe; "), ("-ncmoe 9 -ot a=CPU", "leave out -ncmoe and -ot; ")],
)
def test_only_what_is_in_the_command_is_left_out(options: str, left_out: str) -> None:
    command = f"llama-server -m a.gguf -c 4096 -ngl 7 {options}"
    case = Written(LLAMA, build("DeepSeek-R1-0528", "q4_K_M"), THREADRIPPER, command).case
    (found,) = [f for f in findings(case) if f.rule == "layers-in-ram"]
    assert f"{left_out}-ngl 999 -ot exps=CPU" in f"{found.message} {found.fix}"
    assert left_out or "leave out" not in f"{found.message} {found.fix}"


def test_an_option_that_came_later_is_said_as_the_build_says_it() -> None:
    command = "llama-server -m a.gguf -c 4096 -ngl 99 -cmoe"
    model = build("DeepSeek-R1-0528", "q4_K_M")
    fixes = {}
    for day in ("2025-06-01", "2025-01-03"):
        found = findings(Written(LLAMA, model, THREADRIPPER, command, day).case)
        fixes[day] = next(f.fix for f in found if f.rule == "option-of-another-time")
    assert fixes == {"2025-06-01": "leave out -cmoe; -ot exps=CPU", "2025-01-03": None}


@pytest.mark.parametrize(("mode", "about"), [("layer", ""), ("row", "about ")])
@pytest.mark.parametrize("day", [None, "2025-10-01"])
def test_room_for_experts_is_told_with_rows_split_too_where_it_is_approximate(
    mode: str, about: str, day: str | None
) -> None:
    hardware = Hardware(gpus=[Gpu(name="RTX 3090", count=2)], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=128))
    command = f"llama-server -m a.gguf -c 16384 -ngl 99 -sm {mode} -ts 0.5,0.5 -ncmoe 26"
    model = build("gpt-oss-120b", "exps=mxfp4,*=q8_0")
    told = findings(Written(LLAMA, model, hardware, command, day).case)
    (found,) = [f for f in told if f.rule == "room-for-experts"]
    assert re.match(rf"{about}2\d,\d{{3}} MiB are free on CUDA0", found.message)
    assert f"TG would be {about}1." in found.message
    assert found.fix


@pytest.mark.parametrize(
    ("one", "rule", "severity"),
    [(written_widely(157), "layers-in-ram", "info"), (written(33), "layers-in-ram", "warning")],
)
def test_what_wins_on_one_side_as_much_as_it_loses_on_the_other_is_no_warning(
    one: Written, rule: str, severity: str
) -> None:
    found = {finding.rule: finding for finding in findings(one.case)}
    assert "not applied, because it also costs speed" in found[rule].message
    assert (found[rule].severity, found[rule].fix) == (severity, None)
