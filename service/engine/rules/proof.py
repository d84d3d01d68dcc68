"""Proof of a finding's fix: the change is made, memory and speed are computed again, and the rule looks again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from service.engine.commands.changes import alternatives
from service.engine.errors import InvalidFlags
from service.engine.finding import Finding
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, Rule
from service.engine.units import MIB

_LOST = 0.99  # of PP or TG: less than this is a loss
_LITTLE = 0.8  # of PP or TG: a loss that a usual request in half the time outweighs
_DEPTHS = (0, 4_096, 16_384, 65_536)
_LEAST_FREED_MIB = 256
_PROMPT, _OUTPUT = 4_096, 512  # tokens of the request by which changes are compared


class Proof(NamedTuple):
    """What a change does that removes a finding. `gain`: what is gained, in words.

    `pp`, `tg`: how many times as fast, at the depth where it is most. `helps`: and it loses nothing.
    """

    change: str
    gain: str
    pp: float
    tg: float
    helps: bool
    seconds: float


def proven(case: Case, rule: Rule, rules: Sequence[Rule]) -> Iterator[tuple[Finding, Found]]:
    """Yield what a rule finds, each with the best change that is proven to help, or none.

    A change is not printed where the finding stays, a device runs over that did not before, the build lacks an option
    of it, the engine refuses something new, or PP or TG fall by more than 1 %, or a fifth where a usual request takes
    less than half the time. A finding about speed alone of which no change gains anything is dropped; one whose every
    change loses as much elsewhere is a choice, and no warning. Of a command that does not run, speeds say nothing:
    there a change must make it fit. Advice that changes no command (another quantisation, a newer build) is printed as
    it is.
    """
    pairs = list(rule.findings(case))
    for finding, found in pairs:
        proofs, advice, best = list[Proof](), list[str](), None
        for offered in _offered(finding, found):
            tried = [_tried(case, change, finding, rule, len(pairs), rules) for change in offered]
            advice += [one for one in tried if isinstance(one, str)]
            now = [one for one in tried if isinstance(one, Proof)]
            best = min((one for one in now if one.helps), key=lambda one: one.seconds, default=None)
            proofs += now
            if best is not None:
                break
        worth = [one for one in proofs if max(one.pp, one.tg) >= WORTH_SAYING]
        if best is not None:
            kept = found._replace(pp=max(best.pp, 1.0), tg=max(best.tg, 1.0))
            yield msgspec.structs.replace(finding, fix=best.change, gain=best.gain), kept
        elif rule.about != "speed" or worth:
            is_a_choice = rule.about == "speed" and not advice and _loses_elsewhere(case, proofs)
            severity = "info" if is_a_choice else finding.severity
            said, fix = finding.message + _rejected(worth), ", or ".join(advice) or None
            yield msgspec.structs.replace(finding, severity=severity, message=said, fix=fix), found


def still_helps(case: Case, finding: Finding, rule: Rule, rules: Sequence[Rule]) -> bool:
    """Return whether a finding's fix, proven of another command, is a remedy that helps in this one too."""
    n_found = sum(1 for _ in rule.findings(case))
    proof = _tried(case, finding.fix, finding, rule, n_found, rules) if finding.fix and n_found else None
    return isinstance(proof, Proof) and proof.helps


def _loses_elsewhere(case: Case, proofs: Sequence[Proof]) -> bool:
    """Whether a usual request is no faster with any of the changes."""
    now = request_seconds(case)
    return all(one.seconds > now * _LOST for one in proofs)


def _rejected(worth: Sequence[Proof]) -> str:
    """Say what the best of the changes would cost that are no fixes because they lose elsewhere."""
    best = min(worth, key=lambda one: one.seconds, default=None)
    return "" if best is None else f"; not applied, because it also costs speed: {best.change} ({best.gain})"


def _offered(finding: Finding, found: Found) -> Iterator[Sequence[str]]:
    if found.changes is not None:
        yield from found.changes()
    elif finding.fix:
        yield alternatives(finding.fix)


def _tried(
    case: Case, change: str, finding: Finding, rule: Rule, n_found: int, rules: Sequence[Rule]
) -> Proof | str | None:  # fmt: skip
    """Return what a change does; the change itself where it is advice, None where it is no remedy at all."""
    try:
        after = case.changed(change)
        if after is None:
            return change
        if sum(1 for _ in rule.findings(after)) >= n_found or not after.fits_where(case):
            return None
        if after.lacking - case.lacking or _refused(after, rules) - _refused(case, rules):
            return None
    except InvalidFlags:
        return None
    seconds = request_seconds(after)
    # What is read from a drive runs, so that its speeds say something.
    runs = case.all_fits or (rule.about == "speed" and case.from_drive is not None)
    if finding.severity == "error" or not runs:
        return Proof(change, _when_it_runs(case, after), 1.0, 1.0, True, seconds)
    gains = _gains(case, after)
    pp, tg = max(gain.pp for gain in gains), max(gain.tg for gain in gains)
    least = min(min(gain.pp, gain.tg) for gain in gains)
    lost, outweighed = least < _LOST, least >= _LITTLE and seconds < request_seconds(case) / 2
    helps = (not lost or outweighed or rule.costs) and (rule.about != "speed" or max(pp, tg) >= WORTH_SAYING)
    gain = _in_words(case, after, gains, lost) + (", but right" if lost and rule.costs else "")
    return Proof(change, gain, pp, tg, helps, seconds)


def request_seconds(case: Case) -> float:
    """Return the seconds that a usual request takes, by which changes are compared."""
    speed = case.speed()
    return _PROMPT / speed.pp.expected + _OUTPUT / speed.tg.expected


def _refused(case: Case, rules: Sequence[Rule]) -> set[str]:
    """Names of rules by which the engine refuses a command."""
    return {f.rule for one in rules if one.severity == "error" for f, _ in one.findings(case) if f.severity == "error"}


class _Gain(NamedTuple):
    """How many times as fast prompts and tokens are at a depth, and the speeds behind it."""

    n_kv: int
    pp: float
    tg: float
    pp_tps: tuple[float, float]
    tg_tps: tuple[float, float]


def _gains(case: Case, after: Case) -> list[_Gain]:
    """At an empty cache, and at the deepest of the usual depths that both have."""
    n_ctx = min(case.context_each, after.context_each)
    found = []
    for n_kv in dict.fromkeys((0, max(n for n in _DEPTHS if not n or n < n_ctx))):
        now, then = case.speed(n_kv), after.speed(n_kv)
        pp, tg = (now.pp.expected, then.pp.expected), (now.tg.expected, then.tg.expected)
        found.append(_Gain(n_kv, pp[1] / pp[0], tg[1] / tg[0], pp, tg))
    return found


def _in_words(case: Case, after: Case, gains: Sequence[_Gain], lost: bool) -> str:
    fastest = {"pp": max(gains, key=lambda gain: gain.pp), "tg": max(gains, key=lambda gain: gain.tg)}
    told = [_speed(what, gain) for what, gain in fastest.items() if getattr(gain, what) >= WORTH_SAYING]
    if lost:
        worst = min(gains, key=lambda gain: min(gain.pp, gain.tg))
        told.append(_speed("pp" if worst.pp < worst.tg else "tg", worst))
    return "; ".join(told) or _freed(case, after) or "correctness only"


def _speed(what: str, gain: _Gain) -> str:
    now, then = gain.pp_tps if what == "pp" else gain.tg_tps
    digits = 0 if max(now, then) >= 100 else 1
    at = f" at {gain.n_kv:,} tokens" if gain.n_kv else ""
    return f"{what.upper()} {now:,.{digits}f} to {then:,.{digits}f} t/s{at}"


def _freed(case: Case, after: Case) -> str | None:
    before = {row.device: row for row in case.table}
    less = [(before[row.device].total_mib - row.total_mib, row.device) for row in after.table if row.device in before]
    freed, device = max(less, default=(0.0, ""))
    return f"frees {freed:,.0f} MiB of {device}" if freed >= _LEAST_FREED_MIB else None


def _when_it_runs(case: Case, after: Case) -> str:
    if case.all_fits or not after.all_fits:
        return "correctness only"
    speed = after.speed()
    kept = zip(after.table, after.reserve, strict=False)
    tight = next((row for row, n_bytes in kept if row.free_mib < n_bytes / MIB), None)
    room = "" if tight is None else f" with only {tight.free_mib:,.0f} MiB to spare on {tight.device}"
    return f"fits{room}: PP {speed.pp.expected:,.0f}, TG {speed.tg.expected:,.1f} t/s"
