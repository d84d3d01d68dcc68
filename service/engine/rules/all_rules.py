"""The list of all rules, and what they find, in the order that matters to whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from service.engine.finding import Finding
from service.engine.rules import (
    attention,
    batches,
    cache,
    companions,
    copies,
    eras,
    filling,
    fitting,
    graph_split,
    host,
    options,
    overrides,
    placement,
    spelling,
    splits,
    tensors,
    values,
)
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, Rule

_MODULES = (
    fitting, spelling, values, eras, overrides, splits, graph_split, companions, attention, cache, tensors, placement,
    filling, batches, copies, host, options,
)  # fmt: skip
RULES: tuple[Rule, ...] = tuple(one for module in _MODULES for one in vars(module).values() if isinstance(one, Rule))
_SEVERITIES = ("error", "warning", "info")


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Return findings with errors first; those of one severity keep their order."""
    return sorted(found, key=lambda one: _SEVERITIES.index(one.severity))


def findings(case: Case, explain: Literal["pp", "tg"] | None = None) -> list[Finding]:
    """Return what is wrong with a command: errors first, then by what it costs, then as in the list of rules.

    `explain`: the phase that was measured slower than expected; findings that cost it come first.
    """
    pairs = [pair for one in RULES for pair in one.findings(case)]
    return [finding for finding, _ in sorted(pairs, key=lambda pair: _rank(pair[0], pair[1], explain))]


def _rank(finding: Finding, found: Found, explain: Literal["pp", "tg"] | None) -> tuple[int, float]:
    cost = {"pp": found.pp, "tg": found.tg, None: max(found.pp, found.tg)}[explain]
    return _SEVERITIES.index(finding.severity), -cost
