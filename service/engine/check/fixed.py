"""The corrected command: all fixes in one line or in its file, proven together, and what that takes and gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from service.engine.builds import BuildAsked
from service.engine.commands.changes import Words
from service.engine.commands.parse import parse
from service.engine.commands.read_files import NamedCommand, commands_of, only_command
from service.engine.commands.rewriting import in_file
from service.engine.commands.shell import is_windows, split_commands
from service.engine.commands.unwrap import IN_CONTAINER, as_bash, in_container, out_of_container
from service.engine.commands.yaml_text import entries, read_yaml
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.finding import Finding
from service.engine.rules.all_rules import all_rules, refused
from service.engine.rules.case import Case
from service.engine.rules.proof import proven, still_helps
from service.engine.rules.rule import Rule
from service.engine.units import MIB


class Fixed(NamedTuple):
    """A corrected command as it is printed, and the case that is read from that line."""

    line: str
    case: Case


def fixed_command(
    case: Case, command: str, found: Sequence[Finding], build: BuildAsked | str | None = None
) -> Fixed | None:  # fmt: skip
    """Return the line with the fixes that change it, those of its options first; None where none is better, or where
    an error would be left. `build`: as the check was asked for.

    It is for bash, or for cmd and PowerShell where the command has paths of Windows. Its figures are those of a check
    of that line, which is read again.

    Each fix is tried on top of those before it. One for speed that gains nothing there, and one after which something
    else is as wrong, something does not fit that did, or a card keeps less free than proposed changes leave, gives way
    to what its rule proposes there, if anything. A fix that is optional is left out.
    Of a file (compose, Kubernetes, llama-swap, presets, a unit) it is the file with that command. None also where
    `command` is another form than those and a line that starts the program, perhaps in a container (PowerShell), which
    such a line would not replace, or where other machines take a part (`--rpc`), without which fixes are proven.
    """
    typed = _typed(command, case)
    if case.has_remote:
        return None
    if typed is None:
        return _in_its_file(case, command, found, build)
    after = _corrected(case, found)
    if after is case and not case.parsed.repaired:
        return None
    words = _as_typed(typed, case.parsed.words, after.parsed.words)
    if words is None:
        return None
    if not is_windows(command):
        line = words.line
    elif any("=" in word for word in words.before) or '"' in words.line:
        return None
    else:
        line = words.windows_line
    again = _read_again(line, case, build)
    return None if again is None or _wrong(again)[0] else Fixed(line, again)


def _in_its_file(
    case: Case, command: str, found: Sequence[Finding], build: BuildAsked | str | None
) -> Fixed | None:  # fmt: skip
    """Return the file that a command is from, corrected, if it then says just that."""
    try:
        named = only_command(command)
    except InvalidFlags:
        return None
    line = as_bash(named.command)
    fixed = fixed_command(case, line, found, build) if line != command else None
    text = corrected_file(command, named, fixed.line) if fixed else None
    return Fixed(text, fixed.case) if fixed and text else None


def corrected_file(text: str, named: NamedCommand, line: str) -> str | None:
    """Return a file in which a command of it is `line`; None where that cannot be written, or says anything else, also
    of another command or service, which may share a part of it (`<<: *common`)."""
    written = in_file(text, named, line)
    if written is None:
        return None
    try:
        before, after = ({one.name: one for one in commands_of(whole)} for whole in (text, written))
        others = [{name: one.command for name, one in all_.items() if name != named.name} for all_ in (before, after)]
        meant, said = (parse(one, named.engine).words for one in (line, after[named.name].command))
    except (InvalidInput, KeyError):
        return None
    same = (_variables(meant), meant.options) == (_variables(said), said.options)
    alike = others[0] == others[1] and _other_services(text, named) == _other_services(written, named)
    return written if same and alike else None


def _other_services(text: str, named: NamedCommand) -> dict[str, object]:
    """The services of compose besides the command's own; nothing of other files."""
    content = read_yaml(text) if named.part is not None else None
    services = dict(entries(content.get("services", content))) if isinstance(content, dict) else {}
    own = services.pop(named.name or "", None)
    return dict(services) if own is not None else {}


def _variables(words: Words) -> list[str]:
    """What stands before a program; all GPUs for a container are no variable in every file."""
    return sorted(word for word in words.before if word != f"{IN_CONTAINER}=all")


def _typed(command: str, case: Case) -> list[str] | None:
    """Return the words of the text, if they are those of the command, or start them in a container; else None."""
    try:
        commands = split_commands(command)
    except InvalidFlags:
        return None
    words = case.parsed.words
    meant = [*words.before, words.program, *words.options]
    is_one = len(commands) == 1 and words.program is not None and len(out_of_container(commands[0])) == len(meant)
    return commands[0] if is_one else None


def _as_typed(typed: list[str], before: Words, after: Words) -> Words | None:
    """Return the corrected words in the form of those that were typed; None where a container has no option for it."""
    if out_of_container(typed) is typed:
        return after
    removed = [word for word in before.before if word not in after.before]
    added = [word for word in after.before if word not in before.before]
    found = in_container(typed, removed, added, after.options)
    return Words((), found[0], tuple(found[1:])) if found else None


def _read_again(line: str, case: Case, build: BuildAsked | str | None) -> Case | None:
    try:
        return case.with_command(parse(line, case.engine, build=build), line)
    except InvalidInput:
        return None


def _corrected(case: Case, found: Sequence[Finding]) -> Case:
    """Return the case with every fix that helps on top of those before it."""
    rules = {one.id: one for one in all_rules()}
    applied = [one for one in found if one.rule in rules and not rules[one.rule].optional]
    after, wrong = case, _wrong(case)
    for finding in sorted(applied, key=lambda one: refused().get(one.rule) != "options"):
        for changed in _attempts(case, after, finding, rules[finding.rule]):
            now = _wrong(changed)
            if _is_less(now, wrong) and changed.fits_where(after) and _leaves_room(changed, after):
                after, wrong = changed, now
                break
    return after


def _attempts(case: Case, after: Case, finding: Finding, rule: Rule) -> Iterator[Case]:
    """Yield the cases with a finding's fix on top of others, then with what its rule proposes instead on top of them.

    What was found of the command as it is (`case`) has been proven of it.
    """
    rules = all_rules()
    if after is case or rule.about != "speed" or still_helps(after, finding, rule, rules):
        yield from _changed(after, finding)
    if after is not case and finding.fix:
        for other, _ in proven(after, rule, rules):
            yield from _changed(after, other) if other.fix != finding.fix else ()


def _changed(case: Case, finding: Finding) -> Iterator[Case]:
    try:
        changed = case.changed(finding.fix) if finding.fix else None
    except InvalidFlags:
        return
    if changed is not None:
        yield changed


def _leaves_room(case: Case, before: Case) -> bool:
    """Whether every card keeps free what proposed changes leave free, if it did before."""
    kept = zip(before.table, before.reserve, strict=False)
    roomy = {row.device for row, n_bytes in kept if row.free_mib >= n_bytes / MIB}
    now = zip(case.table, case.reserve, strict=False)
    return all(row.free_mib >= n_bytes / MIB for row, n_bytes in now if row.device in roomy)


_Wrong: TypeAlias = tuple[Counter[str], ...]


def _wrong(case: Case) -> _Wrong:
    """How often each rule finds something in a case: errors, then what does not fit, warnings, the rest."""
    found = [finding for one in all_rules() for finding, _ in one.findings(case)]
    errors, *others = (
        Counter(one.rule for one in found if one.severity == kind) for kind in ("error", "warning", "info")
    )
    return errors, Counter(row.device for row in case.table if not row.fits), *others


def _is_less(now: _Wrong, before: _Wrong) -> bool:
    """Whether fewer errors are there and no new one; of the same errors, so with what does not fit, and so on."""
    differ = next(((a, b) for a, b in zip(now, before, strict=True) if a != b), None)
    return differ is not None and differ[0] <= differ[1]
