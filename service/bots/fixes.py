"""A command with the fixes of what was found in it. The caller checks it again before proposing it."""

from __future__ import annotations

from collections.abc import Iterable

from service.engine.commands import changed, parse
from service.engine.commands.shell import split_commands
from service.engine.rules import Finding
from service.wire.advice.check import Checked


def with_fixes(command: str, findings: Iterable[Finding]) -> str | None:
    """Return the command with each fix that changes a command (`-b 4096`, `leave out -rtr`); None where none does.

    A text of several commands is left alone. Raises InvalidFlags for one that cannot be read.
    """
    if len(split_commands(command)) != 1:
        return None
    written = words = parse(command).words
    for finding in findings:
        written = changed(written, finding.fix or "") or written
    return written.line if written != words else None


def is_better(after: Checked, before: Checked) -> bool:
    """Return whether a fixed command is one to propose: nothing new is wrong with it, and less is than before."""
    known = {(finding.rule, finding.severity) for finding in before.findings}
    new = [f for f in after.findings if f.severity != "info" and (f.rule, f.severity) not in known]
    return not new and len(after.findings) < len(before.findings) and after.fits >= before.fits
