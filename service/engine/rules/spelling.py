"""Options of another program or another time, values that it cannot use or that mean other things, and older builds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache, partial

import msgspec

from service.engine.builds import resolve_build, today
from service.engine.commands.changes import APART
from service.engine.commands.companions import draft_kind, draft_of
from service.engine.commands.parse import base_name
from service.engine.commands.reader import NO_NUMBER, NOT_SET, READ_AS, words_in_one
from service.engine.commands.tables import (
    known_options,
    may_be_own,
    newer_options,
    option_named,
    option_names,
    other_owner,
)
from service.engine.config import Engine
from service.engine.finding import Severity
from service.engine.memory.predict import predict_memory
from service.engine.rules.case import Case
from service.engine.rules.rule import BUILDING, Found, rule
from service.engine.units import MIB

_TODAY_IN_BOTH = {
    "bare -fa": "-fa on",
    "-no-fa": "-fa off",
    "--no-flash-attn": "-fa off",
    "-tgb": "-tb",
    "--threads-gen-batch": "-tb",
}
_PROGRAMS_TODAY = {"main": "llama-cli", "server": "llama-server"}  # since June 2024 (llama.cpp pull 7809)
_FLASH = ("-fa", "--flash-attn")
_LEAVE_OUT = "leave "  # is in what leaves a word out
_LEFT_OUT = "leave it out: "  # begins what is said of a name that has no other today
_NEAR, _LONG_NAME = 0.85, 6  # of a name's likeness (difflib's ratio), and the letters from which on it says something
_LOADING = ("mmap", "mlock")  # fields
_WORDS_OF_ONE = 2  # an option and its value
_FLAGS = "flags-that-are-gone-or-another-engines"
_SOURCE = (
    "ik_llama.cpp 8337e4cd3 common/common.cpp gpt_params_find_arg, llama.cpp 0c1e57098 common/arg.cpp: an unknown "
    "option or value ends the program with exit code 1"
)


@rule("unknown-flag", "error", _FLAGS, _SOURCE, fix="leave it out, or today's spelling", refused="options")
def unknown_flag(case: Case) -> Iterator[Found]:
    """Words that today's program does not know and never did.

    Words in parentheses are not part of a command, as no shell accepts them: they are reported as a comment, or as a
    warning where a value should be.
    """
    for word in case.parsed.unknown:
        name, _, value = word.partition(" ")
        if word == case.parsed.words.program:
            wrong, right = base_name(word), case.parsed.program
            yield Found(f"{case.engine} has no program {wrong}; did you mean {right}?", f"{right} instead of {wrong}")
            continue
        if word.startswith("("):
            yield Found(f"{word[:80]} was read as a comment", f"leave out {word[:80]}", severity="info")
            continue
        several = words_in_one(word, known_options(case.engine, case.parsed.program))
        if several and word in case.parsed.words.options:
            message = f"`{word[:80]}` is one word, and no option is called that; the figures are as if it were more"
            yield Found(message, f"{APART}{shlex.join(several)}")
            continue
        if value and name in known_options(case.engine, case.parsed.program):
            message = f"`{value[:80]}` is not a value of {name[:80]}; the figures are without it"
            severity: Severity | None = "warning" if "(" in value else None
            yield Found(message, f"leave out {word[:80]}", severity=severity)
            continue
        if _known_then(case, name) or (case.parsed.build.newer and name.startswith("-")):
            continue
        if may_be_own(case.engine, case.parsed.program, name):
            continue
        if near := _meant(case.engine, case.parsed.program, name, value):
            how, change = _as_meant(case, name, value, near)
            message = f"{case.parsed.program} of {case.engine} has no option {name[:80]}; {how}"
            yield Found(message, changes=partial(iter, ([change], [f"leave out {name}"])))
            continue
        if near := None if value else _meant(case.engine, case.parsed.program, name, "a value"):
            change = f"{_TODAY_IN_BOTH['bare -fa']}; leave out {name}" if near in _FLASH else f"leave out {name}"
            how = f"did you mean {near}, with a value?"
            yield Found(f"{case.parsed.program} of {case.engine} has no option {name[:80]}; {how}", change)
            continue
        if other := other_owner(case.engine, case.parsed.program, name):
            message = f"{name} is an option of {other}: {case.engine}'s {case.parsed.program} does not know it"
        elif name.startswith("-"):
            message = f"{case.parsed.program} of {case.engine} has no option {name[:80]}"
        else:
            message = f"`{word[:80]}` is where an option was expected"
        yield Found(message, f"leave out {word[:80]}")


@rule("not-as-pasted", "warning", _FLAGS, "bash(1), QUOTING and COMMENTS")
def not_as_pasted(case: Case) -> Iterator[Found]:
    """What makes a shell, or what splits words as one does, read another command than is meant: comments, typographic
    dashes and quotes."""
    for said in case.parsed.repaired:
        yield Found(f"{said}; the figures are for the intended command")
    if case.parsed.commented:
        yield Found(f"`{case.parsed.commented}` begins a comment: the options behind it on that line do not count")


@rule("left-out", "info", _FLAGS, "KoboldCpp's koboldcpp.py, its options, 2025 and 2026")
def left_out(case: Case) -> Iterator[Found]:
    """Options of another program that the figures do not count; a warning where they load a model of their own."""
    for left in case.parsed.left_out:
        names = ", ".join(left.options)
        if left.loads:
            message = f"{names} of {left.program}: loads another model, whose memory and time are not counted"
            yield Found(message, severity="warning")
        else:
            yield Found(f"{names} of {left.program}: not counted")


@rule(
    "newer-flag", "info", _FLAGS, "llama.cpp 00dc8057 (October 2026) tools/server/README.md, pull 29887",
    fix="a build that has it",
)  # fmt: skip
def newer_flag(case: Case) -> Iterator[Found]:
    """Options that are newer than the newest build known here, or that newer builds may have."""
    newer = newer_options(case.engine, case.parsed.program)
    today, date = resolve_build(case.engine, None).label, case.parsed.build.date
    for name in case.parsed.used:
        if name in newer and not date:
            effect = " Its cache is counted on the cards, but not its gain in speed" if "moe-cache" in name else ""
            yield Found(f"{name} is newer than {today}, the newest build known here: older builds refuse it.{effect}")
    for word in case.parsed.unknown if case.parsed.build.newer else ():
        known = may_be_own(case.engine, case.parsed.program, word.partition(" ")[0])
        if word.startswith("-") and not known:
            yield Found(f"{word[:80]} is not known here: builds newer than {today} may have it; it is not counted")


@rule("retired-flag", "error", _FLAGS, _SOURCE, fix="today's spelling", refused="options")
def retired_flag(case: Case) -> Iterator[Found]:
    """Options that were understood, but that today's program no longer has under that name."""
    engine, program = case.engine, case.parsed.program
    if (now := _PROGRAMS_TODAY.get(program)) and not case.parsed.build.date:
        yield Found(
            f"{engine} has no program {program}: it has been called {now} since June 2024",
            f"{now} instead of {program}",
        )
    for name in case.parsed.old:
        if _known_then(case, name):
            continue
        spelling = {} if program == "llama-bench" else case.spec.commands.options.today
        today = _loading(case, name) or _drafting(case, name) or spelling.get(name)
        today = _in_its_place(case, name, today or _TODAY_IN_BOTH.get(name) or _other_name(case, name))
        other = None if today else other_owner(case.engine, case.parsed.program, name)
        if other and program not in case.spec.commands.options.programs:
            continue
        if other:
            message = f"{name} is an option of {other}; {program} of {engine} refuses it"
            today = f"leave out {name}"
        elif name == "bare -fa":
            message = "-fa now needs a value: without one, it takes the next word"
        elif name == NO_NUMBER:
            yield Found(f"{program} reads the word after -fa as 0: flash attention is off", "-fa 1", severity="warning")
            continue
        else:
            message = f"the current {program} of {engine} has no {name}"
        if today and today.startswith(_LEFT_OUT):
            message, today = f"{message}: {today.removeprefix(_LEFT_OUT)}", None
        yield Found(message, today or f"leave out {name}")


def _in_its_place(case: Case, name: str, today: str | None) -> str | None:
    """Return the change that writes today's option instead of the old one, with its value where both take one."""
    words, option = case.parsed.words.options, option_named(name, False)
    if today is None or name not in words or _LEAVE_OUT in today:
        return today
    takes = known_options(case.engine, case.parsed.program).get(today)
    if option is not None and option.field == "load_mode":
        today = " ".join(case.spec.commands.load_mode(case.flags))
    elif takes:
        return f"{today} instead of {name}"
    elif takes is False:  # a switch, where the old one may say `off`
        return f"leave out {name}" if words[words.index(name) + 1 :][:1] == ("off",) else today
    return f"{today}; leave out {name}" if today else f"leave out {name}"


def _other_name(case: Case, name: str) -> str | None:
    """Another name of an option with a value, which the program does know."""
    known = known_options(case.engine, case.parsed.program)
    return next((other for other in option_names(name) if known.get(other)), None)


def _loading(case: Case, name: str) -> str | None:
    """Today's one option for what `--no-mmap` and `--mlock` said together, where the engine has such an option."""
    gone = [old for old in case.parsed.old if (option := option_named(old, False)) and option.field in _LOADING]
    today = case.spec.commands.load_mode(case.flags)
    if name not in gone or len(today) != _WORDS_OF_ONE:
        return None
    return f"{' '.join(today)}; leave out {' and '.join(gone)}"


def _drafting(case: Case, name: str) -> str | None:
    """Today's one option for what older ones said together about drafting."""
    with_draft = draft_kind(case.parsed, case.companion_headers.draft) if draft_of(case.parsed) else None
    today, replaced = case.spec.commands.drafting_today(case.parsed.words.options, with_draft)
    *others, last = replaced or ("",)
    gone = f"{', '.join(others)} and {last}" if others else last
    return f"{today}; leave out {gone}" if name in replaced else None


@rule(
    "cache-type-unknown", "error", "the-cache", "ik_llama.cpp common/common.cpp, llama.cpp common/arg.cpp",
    fix="one of the engine's cache types", refused="options",
)  # fmt: skip
def cache_type_unknown(case: Case) -> Iterator[Found]:
    """Cache types that only the other engine has, or neither."""
    there = case.spec.commands.cache_types(case.parsed.tool)
    for option, kind in (("-ctk", case.flags.cache_type_k), ("-ctv", case.flags.cache_type_v)):
        if kind not in there:
            yield Found(
                f"{option} {kind}: {case.engine} has no such cache type; it has {', '.join(there)}", f"{option} q8_0"
            )


@rule(
    "split-mode-unknown", "error", "layers-or-together--sm", "ik_llama.cpp common/common.cpp:2054-2076; llama.cpp "
    "common/arg.cpp", fix="-sm layer", refused="options",
)  # fmt: skip
def split_mode_unknown(case: Case) -> Iterator[Found]:
    """`-sm row` in ik_llama.cpp, `-sm graph` in llama.cpp; and modes that are younger than the build."""
    memory, mode, date = case.spec.memory, case.flags.split_mode, case.parsed.build.date
    young = memory.together if date and date < memory.together_from else ()
    modes = [one for one in memory.split_modes if one not in young]
    if mode in young:
        yield Found(f"-sm {mode}: builds of {case.engine} have it since {memory.together_from}")
    elif mode not in modes:
        yield Found(f"-sm {mode[:40]}: {case.engine} has {', '.join(modes)}; the figures are for -sm layer")


@rule(
    "context-unset", "info", "what-the-engines-do-unasked",
    "ik_llama.cpp and llama.cpp, llama_init_from_model: n_ctx 0 is n_ctx_train", fix="-c with the tokens you need",
)  # fmt: skip
def context_unset(case: Case) -> Iterator[Found]:
    """Without `-c` the cache covers the whole training context, unless `-fit` shortens it."""
    if case.parsed.flags.n_ctx == 0 and not 0 < case.flags.n_ctx < case.model.n_ctx_train:
        yield Found(
            f"without -c, or with -c 0, the cache covers the training context of {case.model.n_ctx_train:,} tokens"
        )


@rule(
    "context-beyond-training", "info", "what-the-engines-do-unasked",
    "llama.cpp 0c1e57098 tools/server/server-context.cpp:4015 (a slot has at most n_ctx_train), "
    "src/llama-context.cpp:327 (only a warning), :3891 (YaRN lifts it)",
    fix="-c with at most the training context for each slot",
)  # fmt: skip
def context_beyond_training(case: Case) -> Iterator[Found]:
    """A longer context than the model was trained for; llama.cpp's server does not use the excess."""
    trained = case.model.n_ctx_train
    if 0 < trained * max(case.flags.n_parallel, 1) < case.flags.n_ctx:
        lifted = any(o == "--rope-scaling yarn" or ".context_length=" in o for o in case.parsed.rest)
        capped = case.spec.commands.server_caps_context and case.parsed.program == "llama-server" and not lifted
        effect = "the server uses no more than that per slot" if capped else "answers beyond that are unreliable"
        yield Found(f"-c {case.flags.n_ctx:,}, but the model was trained for {trained:,} tokens: {effect}")


@rule("several-values", "info", "what-the-engines-do-unasked", "llama-bench --help")
def several_values(case: Case) -> Iterator[Found]:
    """llama-bench options with several values: the figures are for the first."""
    for option in case.parsed.varied:
        if not option.startswith(("-ot ", "--override-tensor")):
            yield Found(f"{option[:80]}; the figures are for the first value")


@lru_cache(maxsize=1024)
def _meant(engine: Engine, program: str, word: str, value: str) -> str | None:
    """Return the option that a mistyped one is meant to be: known, and with a value where this has one.

    `-ngl=99`, dashes too many or too few, letters in another order or one wrong, or the beginning or end of one option
    only.
    """
    typed, _, joined = word.partition("=")
    known = known_options(engine, program)
    if typed in known:
        return typed if joined and known[typed] else None
    if not typed.startswith("-") or other_owner(engine, program, typed) or option_named(typed, False):
        return None
    alike = [name for name, takes in known.items() if takes is bool(value or joined)]
    bare = typed.lstrip("-")
    same = [name for name in alike if name.lstrip("-") == bare]
    swapped = [name for name in alike if len(bare) > 2 and sorted(name.lstrip("-")) == sorted(bare)]
    begun = [name for name in alike if name.startswith(typed + "-")]
    begun = [name for name in begun if option_named(name, False)] or begun
    ended = [name for name in alike if len(bare) >= _LONG_NAME and name.endswith(f"-{bare}")]
    near = get_close_matches(typed, alike, n=1, cutoff=_NEAR) if len(bare) >= _LONG_NAME else []
    return next((found[0] for found in (same, swapped, begun, ended, near) if len(found) == 1), None)


def _as_meant(case: Case, name: str, value: str, near: str) -> tuple[str, str]:
    """Return what is said of an option mistyped for `near`, and the change: of several that mean one, the last counts.

    The engines set a field anew at each option that names it, so one that another follows has no effect.
    """
    typed, _, joined = name.partition("=")
    how = f"it may mean {near}" if near != typed else "the value must be a separate word"
    before, after = _same_option(case, name, near)
    if after:
        return f"{how}: {after[-1]} comes after it, and the last one counts", f"leave out {name}"
    if before:
        how = f"{how}: it comes after {before[-1]}, and the last one counts"
    elif near != typed:
        how = f"did you mean {near}?"
    return how, f"{near} {value or joined}".rstrip() + ("" if near == typed else f"; leave out {name}")


def _same_option(case: Case, name: str, near: str) -> tuple[list[str], list[str]]:
    """Return the other words, before and after `name`, that are or are meant to be an option of which one counts."""
    option, words = option_named(near, False), case.parsed.words.options
    if option is None or option.field == "overrides" or name not in words:
        return [], []
    at, meant_as = words.index(name), partial(_meant, case.engine, case.parsed.program)
    meant = [
        meant_as(word, following if not following.startswith("-") else "") or word.partition("=")[0]
        for word, following in zip(words, (*words[1:], ""), strict=True)
    ]
    same = [i for i, one in enumerate(meant) if i != at and one in option.names]
    return [words[i] for i in same if i < at], [words[i] for i in same if i > at]


def _known_then(case: Case, name: str) -> bool:
    """Whether an older build has the option, or decides about it in `eras`."""
    build = case.parsed.build
    if name == "bare -fa" and build.date and case.parsed.program != "llama-bench":
        return build.rules.flash_attn_value != "needed"
    return build.date is not None and build.has(case.parsed.program, name) is not None


_FRACTION = re.compile(r" (\d?\.\d+):")
_COUNTS = (
    ("n_ctx", "-c", 0, "0"),
    ("n_batch", "-b", 1, "2048"),
    ("n_ubatch", "-ub", 0, "512"),
    ("n_gpu_layers", "-ngl", 0, "999"),
    ("n_cpu_moe", "-ncmoe", 0, "0"),
)


@rule(
    "value-not-understood", "error", _FLAGS, "ik_llama.cpp common/common.cpp, llama.cpp common/arg.cpp: std::stoi "
    "throws, or takes the digits that a word begins with; the lists of names throw",
    fix="a value that the option takes", refused="options",
)  # fmt: skip
def value_not_understood(case: Case) -> Iterator[Found]:
    """A word where a number belongs (`16k` too), or a name that neither engine knows.

    The figures use the intended number or rule where it is clear, and otherwise leave it out.
    """
    for wrong in case.parsed.refused:
        if wrong.detail.endswith(NOT_SET):
            yield Found(
                f"{wrong.detail[:200]}; the figures are without the option", "write its value", severity="warning"
            )
            continue
        if wrong.option in ("-t", "--threads") and (fraction := _FRACTION.search(wrong.detail)):
            said = f"{wrong.option} {fraction[1]}: this is the number of threads{READ_AS}0; a temperature is --temp"
            yield Found(said, f"--temp {fraction[1]}; leave out {wrong.option}")
            continue
        only = wrong.choices[0] if len(wrong.choices) == 1 else ""
        choices = f"; choose from {', '.join(wrong.choices)}" if len(wrong.choices) > 1 else ""
        figures = f"for {wrong.option} {only}" if only.isdecimal() or "=" in only else "without it"
        change = f"{wrong.option} {only}" if only else f"leave out {wrong.option}"
        yield Found(f"{wrong.detail[:200]}; the figures are {figures}{choices}", change if wrong.option else None)


@rule(
    "value-out-of-range", "error", _FLAGS, "llama_init_from_model of both engines: n_ctx and n_batch are unsigned",
    fix="a value that the engine can use", refused="options",
)  # fmt: skip
def value_out_of_range(case: Case) -> Iterator[Found]:
    """A count below the minimum."""
    for field, option, least, right in _COUNTS:
        value = getattr(case.parsed.flags, field)
        if value < least:
            yield Found(
                f"{option} {value}: the engine cannot start with it; the figures are without it", f"{option} {right}"
            )


@rule(
    "micro-batch-zero", "info", "the-micro-batch-and-the-link",
    "ik_llama.cpp src/llama.cpp:8174, llama.cpp src/llama-context.cpp:248", fix="-ub with the number you mean",
)  # fmt: skip
def micro_batch_zero(case: Case) -> Iterator[Found]:
    """`-ub 0` means as many tokens as `-b`."""
    if case.parsed.flags.n_ubatch == 0:
        yield Found(f"-ub 0 means -ub {case.flags.n_ubatch}, as many tokens as -b", f"-ub {case.flags.n_ubatch}")


@rule(
    "threads-zero", "warning", "threads-and-sockets", "ik_llama.cpp common/common.cpp:1142; llama.cpp common/arg.cpp: "
    "std::thread::hardware_concurrency()", fix="-t with the number of physical cores",
)  # fmt: skip
def threads_zero(case: Case) -> Iterator[Found]:
    """`-t 0` or less means all logical processors, SMT included."""
    n, cores = case.parsed.flags.threads, case.rig.physical_cores
    if n is not None and n <= 0:
        on_cpu = case.memory.devices[-1].weights > case.model.n_bytes // 20
        message = f"-t {n} means one thread per logical processor; the {cores} physical cores alone are fastest"
        yield Found(message, f"-t {cores}, or leave out -t", severity=None if on_cpu else "info")


_HISTORY = (
    "ik_llama.cpp, history of common/common.cpp and examples/llama-bench/llama-bench.cpp, pull 944; llama.cpp, the "
    "pull requests listed in docs/check.md, 15434"
)
_BEFORE = {
    "-no-fmoe": "leave it out: it was off", "--no-fused-moe": "leave it out: it was off",
    "-no-ooae": "leave it out: it was off", "--no-offload-only-active-experts": "leave it out: it was off",
    "-no-fa": "leave it out: it was off", "--no-flash-attn": "leave it out: it was off",
    "-ncmoe": "-ot with the layers' experts", "--n-cpu-moe": "-ot with the layers' experts",
    "-cmoe": "leave out -cmoe; -ot exps=CPU", "--cpu-moe": "leave out -cmoe; -ot exps=CPU",
    "-lm": "--no-mmap or --mlock", "--load-mode": "--no-mmap or --mlock",
    "-dev": "CUDA_VISIBLE_DEVICES", "--device": "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
_WORTH_UPDATING = 0.9  # of today's buffer in the older one


@rule("option-of-another-time", "error", _FLAGS, _HISTORY, fix="that build's spelling", refused="options")
def option_of_another_time(case: Case) -> Iterator[Found]:
    """Options that the build does not have yet, or had only for a while; `-fa` with a value before it took one."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        if case.lacks(name):
            came = build.next_change(case.parsed.program, name)
            when = f"it was added on {came}" if came else "it had been removed by then"
            before = _BEFORE.get(name, "")
            usable = before and not ("-ot" in before and case.lacks("-ot"))
            yield Found(f"build {build.label} has no {name}: {when}", before if usable else f"leave out {name}")
    bare = "bare -fa" in case.parsed.old or not {"-fa", "--flash-attn"} & set(case.parsed.used)
    if build.rules.flash_attn_value == "none" and not bare and case.parsed.program != "llama-bench":
        fix = "leave out -fa" if case.flags.flash_attn == "off" else "-fa alone"
        yield Found(f"-fa takes no value in build {build.label}: the word after it is refused", fix)


@rule("option-gone-since", "info", _FLAGS, _HISTORY)
def option_gone_since(case: Case) -> Iterator[Found]:
    """Options that your build has and today's does not: good to know before an update."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        gone = build.next_change(case.parsed.program, name)
        if gone and build.has(case.parsed.program, name):
            yield Found(f"{name} works in build {build.label}, but was removed on {gone}")


@rule(
    "older-build", "info", BUILDING, "the memory model with the rules of both builds (docs/check.md, Builds)",
    fix="update the engine",
)  # fmt: skip
def older_build(case: Case) -> Iterator[Found]:
    """What the same flags need with today's build, where that is clearly less."""
    if not case.parsed.build.date:
        return
    now = predict_memory(msgspec.structs.replace(case.run, build=today(case.engine)).with_flags(case.flags))
    pairs = list(zip(case.table, case.memory.devices, now.devices, strict=True))
    less = [(row, a.compute, b.compute) for row, a, b in pairs if b.compute < _WORTH_UPDATING * a.compute]
    if less:
        row, a, b = max(less, key=lambda one: one[1] - one[2])
        message = f"today's build needs {b / MIB:,.0f} MiB for the compute buffer of {row.device} instead of"
        yield Found(f"{message} {a / MIB:,.0f}, with the same flags")
