"""The command with what was found corrected, in one piece: each fix that goes with those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from service.engine.commands.shell import is_windows, split_commands
from service.engine.errors import InvalidFlags
from service.engine.finding import Finding
from service.engine.rules.all_rules import all_rules, refused
from service.engine.rules.case import Case


def fixed_command(case: Case, command: str, found: Sequence[Finding]) -> str | None:
    """Return the line with the fixes that change it, those of its options first; None where none is better, or where
    the program would still end because of another error.

    It is for bash, or for cmd and PowerShell where the command has paths of Windows.

    A fix after which something else is as wrong, or something does not fit that did, is left out. None also where
    `command` is another form than a line that starts the program (`docker run`, PowerShell, a file of another program),
    which such a line would not replace.
    """
    if not _is_a_line(command, case):
        return None
    after, wrong = case, None
    for finding in sorted(found, key=lambda one: refused().get(one.rule) != "options"):
        changed = _changed(after, finding)
        if changed is None:
            continue
        wrong = wrong or _wrong(after)
        now = _wrong(changed)
        if _is_less(now, wrong) and changed.fits_where(after):
            after, wrong = changed, now
    if after is case and not case.parsed.repaired:
        return None
    if wrong is not None and not refused().keys().isdisjoint(wrong[0]):
        return None
    words = after.parsed.words
    if not is_windows(command):
        return words.line
    return None if any("=" in word for word in words.before) or '"' in words.line else words.windows_line


def _is_a_line(command: str, case: Case) -> bool:
    """Whether the words of the command are those of the text, and start a program."""
    try:
        commands = split_commands(command)
    except InvalidFlags:
        return False
    words = case.parsed.words
    meant = [*words.before, words.program, *words.options]
    return len(commands) == 1 and words.program is not None and len(commands[0]) == len(meant)


def _changed(case: Case, finding: Finding) -> Case | None:
    try:
        return case.changed(finding.fix) if finding.fix else None
    except InvalidFlags:
        return None


_Wrong = tuple[Counter[str], ...]


def _wrong(case: Case) -> _Wrong:
    """How often each rule finds something in a case: errors, warnings, the rest."""
    found = [finding for one in all_rules() for finding, _ in one.findings(case)]
    return tuple(Counter(one.rule for one in found if one.severity == kind) for kind in ("error", "warning", "info"))


def _is_less(now: _Wrong, before: _Wrong) -> bool:
    """Whether fewer errors are there and no new one; of the same errors, so with warnings, then with the rest."""
    differ = next(((a, b) for a, b in zip(now, before, strict=True) if a != b), None)
    return differ is not None and differ[0] <= differ[1]
