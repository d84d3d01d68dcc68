"""A command in the spelling of an older build, and the oldest build that a command runs on.

What changed when is in `history.json` and `builds.json`: options that came and went, and what follows `-fa`.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advice import OldestBuild
from service.engine.builds import Build, date_of_today, months_between, resolve_build, rule_since
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags

_YOUNG_MONTHS = 6  # builds up to this age are taken to be in use


def respelled(words: Sequence[str], engine: Engine, program: str, flags: Flags, build: Build) -> list[str]:
    """Return the words of today's command in the spelling of `build`.

    Raises InvalidFlags, naming the option, for an option that this build has no equivalent of.
    """
    kept: list[str] = []
    skip = False
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
            continue
        if word not in _OLDER or _reads(build, program, word):
            _refuse_unknown(build, program, word)
            kept.append(word)
            continue
        kept += _older(word, value, build)
        skip = word in _TAKE_VALUES
    return kept + engine_spec(engine).commands.older_defaults(flags, build.rules, kept)


def _reads(build: Build, program: str, option: str) -> bool:
    """Whether the build takes the option with the same meaning as today's."""
    if option == "-fa":
        return program == "llama-bench" or build.rules.flash_attn_value == "needed"
    return build.has(program, option) is not False


def _refuse_unknown(build: Build, program: str, word: str) -> None:
    if word.startswith("-") and not word[1:2].isdigit() and build.has(program, word) is False:
        came = build.next_change(program, word)
        raise InvalidFlags(f"a build {build.label} has no {word}: it came on {came}", field="build")


def _older(word: str, value: str, build: Build) -> list[str]:
    """Return the words for an older build instead: none where it does that by default.

    Without a value `-fa` switches it on; where it is gone, `-no-fa` switches it off. `-lm` was `--no-mmap` and
    `--mlock` (llama.cpp pulls 20834 and 28334).
    """
    if word == "-fa" and build.rules.flash_attn_value == "gone":
        return ["-no-fa"] if value == "off" else []
    if word == "-fa":
        return [] if value == "off" else ["-fa"]
    if word == "-lm":
        return (["--mlock"] if "mlock" in value else []) + ([] if "mmap" in value else ["--no-mmap"])
    return ["-ot", "exps=CPU"] if word == "-cmoe" else []


_OLDER = ("-fa", "-lm", "-fit", "-no-fmoe", "-no-ooae", "-cmoe")
_TAKE_VALUES = _OLDER[:3]


def oldest_build(engine: Engine, program: str, words: Sequence[str]) -> OldestBuild | None:
    """Return the oldest build that knows every option of a command in today's spelling, by the history kept here.

    None where no option is known to be newer than the oldest build known here.
    """
    today = resolve_build(engine, None)
    dates: dict[str, list[str]] = {}
    for word in words:
        came = today.since(program, word) if word.startswith("-") else None
        if came:
            dates.setdefault(came, []).append(word)
    if "-fa" in words and program != "llama-bench":
        dates.setdefault(rule_since(engine, "flash_attn_value"), []).append("-fa with a value")
        dates = {date: [need for need in needs if need != "-fa"] for date, needs in dates.items()}
    if not dates:
        return None
    newest = max(dates)
    return OldestBuild(newest, tuple(dict.fromkeys(dates[newest])))


def is_young(engine: Engine, oldest: OldestBuild) -> bool:
    """Return whether that build is less than six months older than today's, so that builds before it may be in use."""
    return months_between(oldest.date, date_of_today(engine)) < _YOUNG_MONTHS
