"""Changes of a command, as findings word them: `-ub 4096 -b 4096`, `leave out -rtr`, `X=1 before the command`.

What is printed as a fix is read back here and applied to the words of the command, so that it can be proven.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.commands.shell import OPTION, quote
from service.engine.commands.tables import option_named, option_names
from service.engine.commands.unwrap import IN_CONTAINER
from service.engine.engines import all_engines

_RULES_FIRST = " before the other rules"
_IN_FRONT = " before the command"
_LEAVE_OUT = "leave out "
APART = "each word apart: "
ALL_FOR_THE_CONTAINER = "all GPUs for the container (docker run --gpus all, compose: `gpus: all`)"
_INSTEAD = re.compile(r"([\w-]+) instead of ([\w-]+)")
_VALUE_INSTEAD = re.compile(r"-\S+ (\S+) instead of (\S+)")
_VARIABLE = re.compile(r"(?:[\w./:=,@%+-]*\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}))+[\w./:=,@%+-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
_NODES = re.compile(r"[0-9][0-9,-]*")
_PLAIN_ON_WINDOWS = re.compile(r"[\w./:\\=+$~-]+")  # a comma would make an array in PowerShell


class Words(NamedTuple):
    """The words of a command: before its program, the program (None: only options were given), and its options."""

    before: tuple[str, ...]
    program: str | None
    options: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command in one line, quoted for a shell."""
        return " ".join(map(_quoted, self._in_order))

    @property
    def windows_line(self) -> str:
        """The same for cmd and PowerShell, which both take double quotes."""
        return " ".join(word if _PLAIN_ON_WINDOWS.fullmatch(word) else f'"{word}"' for word in self._in_order)

    @property
    def _in_order(self) -> tuple[str, ...]:
        return (*self.before, *(() if self.program is None else (self.program,)), *self.options)


def _quoted(word: str) -> str:
    """Return the word as it is typed: a variable that a shell is to replace (`"$model"`) in double quotes."""
    return f'"{word}"' if _VARIABLE.fullmatch(word) else quote(word)


def alternatives(fix: str) -> list[str]:
    """Return the alternative changes that a fix offers."""
    return fix.split(", or ")


def changed(words: Words, change: str) -> Words | None:
    """Return the command with a change applied; None where `change` is advice rather than a change of the command.

    Several changes are joined by `; `.
    """
    found: Words | None = words
    for part in change.split("; "):
        found = None if found is None else _with_part(found, part)
    return found


def _with_part(words: Words, part: str) -> Words | None:
    if part == ALL_FOR_THE_CONTAINER:
        return _in_front(words, [f"{IN_CONTAINER}=all"])
    if part.endswith(_IN_FRONT):
        return _in_front(words, shlex.split(part.removesuffix(_IN_FRONT)))
    if part.startswith(APART):
        several = shlex.split(part.removeprefix(APART))
        apart = ([*several] if _apart(word) == several else [word] for word in words.options)
        return words._replace(options=tuple(word for group in apart for word in group))
    instead = _INSTEAD.fullmatch(part)
    if instead and instead[2].startswith("-"):
        return words._replace(options=tuple(instead[1] if word == instead[2] else word for word in words.options))
    if instead and words.program:
        return words._replace(program=re.sub(rf"(?<![\w-]){instead[2]}(?=(?:\.exe)?$)", instead[1], words.program))
    if values := _VALUE_INSTEAD.fullmatch(part):
        (new,), (old,) = shlex.split(values[1]), shlex.split(values[2])
        return words._replace(options=tuple(new if word == old else word for word in words.options))
    if part.startswith(_LEAVE_OUT):
        named = re.split(r", | and ", part.removeprefix(_LEAVE_OUT))
        if not all(OPTION.match(name) for name in named):
            return None
        options = list(words.options)
        for name in named:
            options = _left_out(options, *name.partition(" ")[::2])
        return _without_variables(words._replace(options=tuple(options)), [name.partition(" ")[0] for name in named])
    pairs = _pairs(part.removesuffix(_RULES_FIRST))
    if not pairs:
        return None
    written = words._replace(options=tuple(_written(words.options, pairs, part.endswith(_RULES_FIRST))))
    return _without_variables(written, [name for name, _ in pairs])


def _apart(word: str) -> list[str]:
    try:
        return shlex.split(word)
    except ValueError:
        return [word]


def _in_front(words: Words, new: Sequence[str]) -> Words | None:
    """Variables replace those of their name, a binding of threads and memory replaces another."""
    if new[:1] == ["numactl"]:
        return words._replace(before=(*_unbound(words.before), *new))
    if not new or not all(_ASSIGNMENT.fullmatch(word) for word in new):
        return None
    names = tuple(word.partition("=")[0] + "=" for word in new)
    return words._replace(before=(*new, *(word for word in words.before if not word.startswith(names))))


def _without_variables(words: Words, names: Sequence[str]) -> Words:
    """Return the command without the variables that stand for options: they would be read again. `-ot` rules add up."""
    options = {name for option in names for name in option_names(option)} - set(option_names("-ot"))
    stay = (word for word in words.before if options.isdisjoint(_stands_for(word.partition("=")[0])))
    return words._replace(before=tuple(stay))


def _stands_for(variable: str) -> set[str]:
    found = (engine.commands.options.environment.get(variable) for engine in all_engines())
    return {name for option in found if option for name in option_names(option)}


def _unbound(before: Sequence[str]) -> Iterator[str]:
    inside = False
    for word in before:
        inside = word == "numactl" or (inside and (word.startswith("-") or _NODES.fullmatch(word) is not None))
        if not inside:
            yield word


def _pairs(text: str) -> list[tuple[str, str | None]]:
    """Return options with their values; [] where there are other words too."""
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    starts = [i for i, word in enumerate(words) if OPTION.match(word)]
    ends = [*starts[1:], len(words)]
    if starts[:1] != [0] or any(end - start > 2 for start, end in zip(starts, ends, strict=True)):
        return []
    return [(words[i], words[i + 1] if end - i == 2 else None) for i, end in zip(starts, ends, strict=True)]


def _written(options: Sequence[str], pairs: Sequence[tuple[str, str | None]], first: bool) -> list[str]:
    """Return the options with some of them set: each replaces its old value, but `-ot` rules are added."""
    kept, front = list(options), list[str]()
    for name, value in pairs:
        known = option_named(name, False)
        new = [name] if value is None else [name, value]
        if known is not None and known.field == "overrides":
            front += new if first else []
            kept += [] if first else new
        else:
            kept = [*_left_out(kept, name), *new]
    return [*front, *kept]


def _left_out(options: Sequence[str], name: str, value: str = "") -> list[str]:
    """Return the options without one, however it is spelled; with a `value`, only where it has that value.

    Of several `-ot` rules after one option, only that rule is removed.
    """
    known = option_named(name, False) or option_named(name, True)
    names = known.names if known else (name,)
    kept, i = list[str](), 0
    while i < len(options):
        spelled, equals, joined = options[i].partition("=")
        spelled = spelled.replace("_", "-") if spelled.startswith("--") else spelled
        behind = [joined] if equals else _values(options[i + 1 :], value)
        if options[i] == name and equals:  # `-ngl=99`, which no program reads as `-ngl`
            i += 1
            continue
        if spelled not in names or (value and value not in (" ".join(behind), *behind[:1], *_rules(behind))):
            kept.append(options[i])
            i += 1
            continue
        rules = [rule for rule in _rules(behind) if rule != value]
        if known is not None and known.field == "overrides" and value and rules:
            kept += [spelled, ",".join(rules)]
        i += 1 if equals else 1 + len(behind)
    return kept


def _values(following: Sequence[str], value: str) -> list[str]:
    """Return the words after an option that are its value: as many as `value` has, or the next if it is no option."""
    n = len(value.split(" "))
    if value and " ".join(following[:n]) == value:
        return list(following[:n])
    return [word for word in following[:1] if not OPTION.match(word)]


def _rules(behind: Sequence[str]) -> list[str]:
    return behind[0].split(",") if behind else []
