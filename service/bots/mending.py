"""A command with what was found in it mended, as far as options go. Whoever proposes it checks it again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from service.engine.commands import quote
from service.engine.commands.shell import split_commands
from service.engine.commands.tables import option_named
from service.engine.rules import Finding
from service.wire.check import Checked

_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_LEAVE_OUT = re.compile(r"leave (?:out (?P<behind>--?[A-Za-z][\w-]*)|(?P<between>--?[A-Za-z][\w-]*) out)")
_VALUE = re.compile(r"[^\s,;'\"]+")


def mended(command: str, findings: Iterable[Finding]) -> str | None:
    """Return the command with each fix that is options only (`-b 4096`, `leave out -rtr`); None where none is.

    A text of several commands is left alone. Raises InvalidFlags for one that cannot be read.
    """
    commands = split_commands(command)
    if len(commands) != 1:
        return None
    words = commands[0]
    for finding in findings:
        for option, value in _changes(finding.fix or ""):
            words = _with(words, option, value)
    return " ".join(map(quote, words)) if words != commands[0] else None


def is_better(after: Checked, before: Checked) -> bool:
    """Return whether a mended command is one to propose: nothing new is wrong with it, and less is than before."""
    known = {(finding.rule, finding.severity) for finding in before.findings}
    new = [f for f in after.findings if f.severity != "info" and (f.rule, f.severity) not in known]
    return not new and len(after.findings) < len(before.findings) and after.fits >= before.fits


def _changes(fix: str) -> Iterator[tuple[str, str | None]]:
    """Yield (option, value) for what is to be written, (option, None) for what is to be left out."""
    gone = _LEAVE_OUT.fullmatch(fix)
    if gone:
        yield gone["behind"] or gone["between"], None
        return
    words = fix.split()
    options = [i for i, word in enumerate(words) if _OPTION.fullmatch(word)]
    if options[:1] != [0] or any(j - i > 2 for i, j in zip(options, [*options[1:], len(words)], strict=True)):
        return
    found = [(words[i], " ".join(words[i + 1 : j])) for i, j in zip(options, [*options[1:], len(words)], strict=True)]
    if all(not value or _VALUE.fullmatch(value) for _, value in found):
        yield from found


def _with(words: list[str], option: str, value: str | None) -> list[str]:
    """Return words with the option set, or left out; `-ot` rules are added behind the others, of which each counts."""
    known = option_named(option, False)
    names = known.names if known else (option,)
    kept = words if known and known.field == "overrides" and value is not None else _without(words, names)
    return kept if value is None else [*kept, option, *([value] if value else [])]


def _without(words: list[str], names: tuple[str, ...]) -> list[str]:
    kept, skip = list[str](), False
    for word, following in zip(words, [*words[1:], "-end"], strict=True):
        if skip:
            skip = False
        elif word in names:
            skip = not _OPTION.match(following)
        elif not any(word.startswith(f"{name}=") for name in names if name.startswith("--")):
            kept.append(word)
    return kept
