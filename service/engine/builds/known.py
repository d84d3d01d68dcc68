"""Builds of the engines: a date, a number or a commit, understood; and what held for a build.

`builds.json` is read from ik_llama.cpp's repository (`scripts/write_builds.py`); `history.json` says by hand, each with
its source, what changed when, and which numbers llama.cpp's builds had when (as packaged by conda-forge).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from importlib import resources

import msgspec

from service.engine.builds.rules import BuildRules, MemoryRules
from service.engine.config import Engine
from service.engine.errors import InvalidInput

MAX_BUILD_TEXT = 64
_EXAMPLE = "a date such as 2025-05-11 is always understood"
_NUMBER = re.compile(r"b?(\d{3,6})")
_COMMIT = re.compile(r"[0-9a-f]{6,40}")
_DATE = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NEWER_NUMBERS = 2_000  # so many builds after the newest known one are believed to exist


class BuildAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A build of an engine: one of the three. `date`: 2025-05-11; `number`: that of `--version`; `commit`: its hash."""

    date: str | None = None
    number: int | None = None
    commit: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an engine does differently since `date`. `before`: the rules that held until then."""

    engine: Engine
    date: str
    what: str
    before: dict[str, bool | int | str | list[str]]
    source: str


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build understood. `date` None: today's build, or a newer one. `about`: the date is between two known ones.

    `label`: what answers call it.
    """

    engine: Engine
    label: str
    date: str | None = None
    about: bool = False
    newer: bool = False

    @property
    def rules(self) -> BuildRules:
        """What held for it."""
        return _rules_at(self.engine, self.date)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What changed since, oldest first."""
        return tuple(c for c in _history().changes if c.engine == self.engine and self.date and c.date > self.date)

    def has(self, program: str, option: str) -> bool | None:
        """Return whether `program` had `option`; None where that is not known to have changed."""
        dates = _lifetimes(self.engine, program).get(option)
        return None if dates is None else bisect_right(dates, self.date or "9") % 2 == 1

    def since(self, program: str, option: str) -> str | None:
        """Return the date of the first build from which on, up to this one, `program` has had `option`."""
        dates = [date for date in _lifetimes(self.engine, program).get(option, ()) if date <= (self.date or "9")]
        return dates[-1] if len(dates) % 2 else None

    def next_change(self, program: str, option: str) -> str | None:
        """Return the date of the first build after this one that gained or lost `option`."""
        dates = _lifetimes(self.engine, program).get(option, ())
        return next((date for date in dates if self.date and date > self.date), None)


def resolve_build(engine: Engine, asked: BuildAsked | str | None) -> Build:
    """Return the build that was asked for; None: today's. Raises InvalidInput, saying what would be right."""
    if asked is None:
        return today(engine)
    stated = parse_build(asked) if isinstance(asked, str) else asked
    given = [name for name in ("date", "number", "commit") if getattr(stated, name) is not None]
    if len(given) != 1:
        raise _wrong(f"a build is one of date, number and commit, not {len(given)} of them")
    if stated.date is not None:
        return _of_date(engine, stated.date)
    return _of_commit(engine, stated.commit) if stated.commit is not None else _of_number(engine, stated.number or 0)


def parse_build(text: str) -> BuildAsked:
    """Return a build written as `2025-05-11`, `b3700`, `3700` or `8337e4cd3`. Raises InvalidInput."""
    text = text.strip()[: MAX_BUILD_TEXT + 1]
    if _DATE.fullmatch(text):
        return BuildAsked(date=text)
    if number := _NUMBER.fullmatch(text):
        return BuildAsked(number=int(number[1]))
    if _COMMIT.fullmatch(text.lower()):
        return BuildAsked(commit=text.lower())
    raise _wrong(f"{text!r} is no date (2025-05-11), number (b3700) or commit (8337e4cd3)")


def rule_since(engine: Engine, rule: str) -> str:
    """Return the date since which a rule of `BuildRules` or `MemoryRules` is as it is today."""
    return max(change.date for change in _history().changes if change.engine == engine and rule in change.before)


def day_before(date: str) -> str:
    """Return the day before a date (YYYY-MM-DD); before the first of March the 28th of February is near enough."""
    year, month, day = map(int, date.split("-"))
    if day > 1:
        return f"{year}-{month:02}-{day - 1:02}"
    year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return f"{year}-{month:02}-{28 if month == 2 else _DAYS[month - 1]:02}"


def months_between(earlier: str, later: str) -> int:
    """Return the whole months from one date (YYYY-MM-DD) to another."""
    (year, month, day), (year2, month2, day2) = (map(int, date.split("-")) for date in (earlier, later))
    return (year2 - year) * 12 + month2 - month - (day2 < day)


def date_of_today(engine: Engine) -> str:
    """Return the date of the build whose rules this project follows."""
    return _history().today[engine].date


def today(engine: Engine) -> Build:
    """Return the build whose rules and defaults this project follows."""
    return Build(engine=engine, label=_history().today[engine].label)


def _wrong(what: str, choices: tuple[str, ...] = ()) -> InvalidInput:
    return InvalidInput(f"{what}: {_EXAMPLE}", field="build", choices=choices)


def _of_date(engine: Engine, text: str, label: str | None = None, *, about: bool = False) -> Build:
    if not _is_date(text):
        raise _wrong(f"{text[:40]!r} is no date")
    newest, oldest = _history().today[engine].date, _history().today[engine].oldest
    if text < oldest:
        raise InvalidInput(f"builds of {engine} before {oldest} are not known here", field="build", choices=(oldest,))
    if text >= newest:
        return msgspec.structs.replace(today(engine), newer=text > newest)
    named = f"{label} of {'about ' if about else ''}{text}" if label else f"of {text}"
    return Build(engine=engine, label=named, date=text, about=about)


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    return match is not None and int(match[3]) <= _DAYS[int(match[2]) - 1]


def _between(start: str, end: str, share: float) -> str:
    """Return the day at `share` of the way, give or take one."""
    first, last = ((int(day[:4]) * 12 + int(day[5:7]) - 1) * 31 + int(day[8:]) - 1 for day in (start, end))
    months, day = divmod(first + round((last - first) * share), 31)
    return f"{months // 12}-{months % 12 + 1:02}-{min(day + 1, _DAYS[months % 12]):02}"


def _of_number(engine: Engine, number: int) -> Build:
    numbers = _numbers(engine)
    first, last = numbers[0], numbers[-1]
    if not first[0] <= number <= last[0] + _NEWER_NUMBERS:
        raise _wrong(f"{engine}'s builds known here are numbered {first[0]} to {last[0]}, none is {number}")
    if number >= last[0]:
        return msgspec.structs.replace(today(engine), newer=number > last[0])
    after = bisect_right(numbers, (number, "9"))
    (low, start), (high, end) = numbers[after - 1], numbers[after]
    if low == number:
        return _of_date(engine, start, f"b{number}")
    day = _between(start, end, (number - low) / (high - low))
    return _of_date(engine, day, f"b{number}", about=True)


def _of_commit(engine: Engine, commit: str) -> Build:
    name = commit.lower()
    if not _COMMIT.fullmatch(name):
        raise _wrong(f"{commit[:48]!r} is no commit: 6 to 40 hexadecimal digits")
    if name[:9] == _history().today[engine].label[:9] or name == _history().today[engine].label[: len(name)]:
        return today(engine)
    commits = _commits(engine)
    found = {commits[known] for known in commits if known.startswith(name[:8]) or name.startswith(known)}
    if len(found) != 1:
        what = "is not known here" if not found else "is not unique"
        raise _wrong(f"the commit {name[:12]} of {engine} {what}")
    return _of_date(engine, found.pop(), name[:9])


# -- the tables --------------------------------------------------------------------------------------------------------


class _Today(msgspec.Struct, frozen=True):
    """`oldest`: the first day whose rules are known. `date`: from this day on a build counts as today's."""

    label: str
    date: str
    oldest: str


class _History(msgspec.Struct, frozen=True):
    today: dict[Engine, _Today]
    numbers: list[tuple[int, str]]
    options: dict[str, str]
    changes: list[Change]


class _Recorded(msgspec.Struct, frozen=True):
    builds: dict[str, str]
    options: dict[str, dict[str, str]]


@cache
def _history() -> _History:
    return msgspec.json.decode(_data("history.json"), type=_History)


@cache
def _recorded() -> _Recorded:
    return msgspec.json.decode(_data("builds.json"), type=_Recorded)


def _data(name: str) -> bytes:
    return resources.files("service.engine.data").joinpath(name).read_bytes()


@cache
def _numbers(engine: Engine) -> list[tuple[int, str]]:
    """Known numbers with their dates, ascending."""
    if engine == "llama.cpp":
        return sorted(_history().numbers)
    words = ((word, date) for date, line in _recorded().builds.items() for word in line.split())
    return sorted((int(word.partition(":")[0]), date) for word, date in words if ":" in word)


@cache
def _commits(engine: Engine) -> dict[str, str]:
    """The date of every known commit, its first eight digits or nine."""
    if engine == "llama.cpp":
        return {}
    words = ((word, date) for date, line in _recorded().builds.items() for word in line.split())
    return {word.rpartition(":")[2]: date for word, date in words}


@cache
def _lifetimes(engine: Engine, program: str) -> dict[str, list[str]]:
    """The days on which an option came, went, and came again."""
    if engine == "llama.cpp":
        texts = _history().options if program != "llama-bench" else {}
    else:
        texts = _recorded().options["llama-bench" if program == "llama-bench" else "llama-server"]
    return {name: dates.split() for name, dates in texts.items()}


@cache
def _rules_at(engine: Engine, date: str | None) -> BuildRules:
    """Undo every change since `date`, the newest first."""
    build: dict[str, object] = {}
    memory: dict[str, object] = {}
    for change in sorted(_history().changes, key=lambda c: c.date, reverse=True):
        if change.engine != engine or date is None or change.date <= date:
            continue
        for name, value in change.before.items():
            if isinstance(value, list):
                memory[name] = (*memory.get(name, ()), *value)  # type: ignore[misc]
            else:
                (memory if name in MemoryRules.__struct_fields__ else build)[name] = value
    defaults = {"flash_attn": "auto", "fit": True, "auto_slots": 4} if engine == "llama.cpp" else {}
    return msgspec.convert({**defaults, **build, "memory": memory}, BuildRules)
