"""The list of all rules, and what they find, in the order that matters to anyone who asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

import msgspec

from service.engine.config import ENGINES
from service.engine.engines import engine_rules
from service.engine.finding import Finding
from service.engine.rules import (
    batches,
    companions,
    fitting,
    hidden,
    host,
    placement,
    purposes,
    spelling,
    splits,
    tensors,
)
from service.engine.rules import cache as caches
from service.engine.rules.case import Case
from service.engine.rules.proof import proven
from service.engine.rules.rule import Found, Refused, Rule, rules_in

_MODULES = (fitting, spelling, purposes, splits, companions, caches, tensors, placement, hidden, batches, host)
_SEVERITIES = ("error", "warning", "info")


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule: those about all engines, then those of each engine's folder."""
    own = (msgspec.structs.replace(one, engines=(engine,)) for engine in ENGINES for one in engine_rules(engine))
    return (*rules_in(*_MODULES), *own)


@cache
def refused() -> dict[str, Refused]:
    """Return the names of the rules by which the program ends before it answers, with when it does."""
    return {one.id: one.refused for one in all_rules() if one.refused}


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Return findings with errors first; those of one severity keep their order."""
    return sorted(found, key=lambda one: _SEVERITIES.index(one.severity))


def findings(case: Case, explain: Literal["pp", "tg"] | None = None) -> list[Finding]:
    """Return what is wrong with a command, each fix proven: errors first, then by what it costs, then as listed.

    `explain`: the phase that was measured slower than expected; findings that cost it come first.
    """
    rules = all_rules()
    pairs = [pair for one in rules for pair in proven(case, one, rules)]
    return [finding for finding, _ in sorted(pairs, key=lambda pair: _rank(pair[0], pair[1], explain))]


def _rank(finding: Finding, found: Found, explain: Literal["pp", "tg"] | None) -> tuple[int, float]:
    cost = {"pp": found.pp, "tg": found.tg, None: max(found.pp, found.tg)}[explain]
    return _SEVERITIES.index(finding.severity), -cost
