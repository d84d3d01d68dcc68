"""Looks for known dangers: in the code by bandit, in its dependencies by pip-audit. Part of `make check`.

An exception in the code is one `# noqa: S…` with its reason, for ruff and bandit alike: ruff's S rules are bandit's, by
the same numbers. Bandit runs as well because the two see some things differently. A finding without exception fails.

A known vulnerability fails. If no advisory service can be reached, that is printed loudly and nothing fails; if one
answers for only some packages, the others fail.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parent.parent
CODE = ("service", "workers")
_SECONDS = 10  # for one answer of an advisory service
_UNANSWERED = re.compile(r"ConnectionError|ConnectTimeout|ReadTimeout|ServiceError|ProxyError|SSLError")
_EXCEPTION = re.compile(r"# noqa: ((?:[A-Z]+[0-9]+(?:, )?)+)")


class Finding(msgspec.Struct, frozen=True):
    """A finding of bandit. `code`: the source lines, each with its number in front."""

    test_id: str
    filename: str
    line_number: int
    issue_text: str
    code: str


class _Found(msgspec.Struct):
    results: list[Finding]
    errors: list[dict[str, str]]


class Vulnerability(msgspec.Struct, frozen=True):
    """A known vulnerability of a version of a package."""

    id: str
    fix_versions: Sequence[str] = ()


class Package(msgspec.Struct, frozen=True):
    """What pip-audit says about a package. `skip_reason`: why it could not be checked."""

    name: str
    version: str = ""
    skip_reason: str | None = None
    vulns: Sequence[Vulnerability] = ()


class _Audited(msgspec.Struct):
    dependencies: list[Package]


class Verdict(NamedTuple):
    """The outcome of an audit: lines to print, and whether it passes."""

    lines: list[str]
    passes: bool


def code_verdict(findings: Sequence[Finding], root: Path = ROOT) -> Verdict:
    """Return the findings in the code that have no exception on their line."""
    wrong = [found for found in findings if found.test_id not in _exceptions(root, found)]
    lines = [f"{found.filename}:{found.line_number}: {found.test_id} {found.issue_text}" for found in wrong]
    return Verdict(lines, not wrong)


def _exceptions(root: Path, found: Finding) -> list[str]:
    line = (root / found.filename).read_text().split("\n")[found.line_number - 1]
    stated = _EXCEPTION.search(line)
    return [code.strip().replace("S", "B", 1) for code in stated[1].split(",")] if stated else []


def dependency_verdict(packages: Sequence[Package] | None) -> Verdict:
    """Return what is known about packages. None, or all of them skipped: no advisory service answered."""
    if packages is None or all(one.skip_reason for one in packages):
        return Verdict(["NOT AUDITED: no advisory service answers here, so nothing is known of any package"], True)
    known = [(one, vulnerability) for one in packages for vulnerability in one.vulns]
    lines = [
        f"{one.name} {one.version}: {found.id}, fixed in {', '.join(found.fix_versions) or 'no version yet'}"
        for one, found in known
    ]
    skipped = [f"{one.name}: not audited: {one.skip_reason}" for one in packages if one.skip_reason]
    return Verdict([*lines, *skipped] or [f"{len(packages)} packages, nothing known"], not known and not skipped)


def audit_code() -> Verdict:
    """Run bandit over the code. Raises CalledProcessError if it fails."""
    made = subprocess.run(
        [sys.executable, "-m", "bandit", "-q", "-r", *CODE, "-c", "pyproject.toml", "-f", "json"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode not in (0, 1):
        raise subprocess.CalledProcessError(made.returncode, "bandit", made.stdout, made.stderr)
    found = msgspec.json.decode(made.stdout, type=_Found)
    if found.errors:
        return Verdict([json.dumps(error) for error in found.errors], False)
    return code_verdict(found.results)


def audit_dependencies(requirements: Path, services: Sequence[Sequence[str]]) -> Verdict:
    """Check everything in `requirements` with the first advisory service that answers; `services`: pip-audit's
    options."""
    for options in services:
        packages = _asked(requirements, options)
        if packages and not all(one.skip_reason for one in packages):
            return dependency_verdict(packages)
    return dependency_verdict(None)


def _asked(requirements: Path, options: Sequence[str]) -> list[Package] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, "-m", "pip_audit", "-r", str(requirements), "--disable-pip", "-f", "json"]
        command += ["-o", str(out), "--progress-spinner", "off", "--timeout", str(_SECONDS), "--cache-dir", folder]
        made = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        if not out.exists():
            if _UNANSWERED.search(made.stderr):
                return None
            raise subprocess.CalledProcessError(made.returncode, command, made.stdout, made.stderr)
        return msgspec.json.decode(out.read_bytes(), type=_Audited).dependencies


def main(arguments: list[str]) -> int:
    """Audit code and dependencies and print the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Look for what is known to be dangerous.")
    parser.add_argument("--requirements", type=Path, default=ROOT / "requirements-dev.txt")
    parser.add_argument("--osv-url", help="ask this advisory service, which speaks OSV's protocol")
    given = parser.parse_args(arguments)
    services = [["-s", "osv", "--osv-url", given.osv_url]] if given.osv_url else [["-s", "pypi"], ["-s", "osv"]]
    passes = True
    for what, verdict in (
        ("code", audit_code()),
        ("dependencies", audit_dependencies(given.requirements, services)),
    ):
        for line in verdict.lines:
            print(f"{what}: {line}")
        passes = passes and verdict.passes
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
