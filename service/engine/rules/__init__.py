"""The engines' rules: what is wrong with a command, what it costs, and what fixes it. One small function a rule.

A rule takes a Case (a command on a machine, its memory computed) and yields what it found. Figures that a rule states
come from the memory and speed models with the fixed flags or placement, never from the rule itself.
"""

from service.engine.finding import Finding, Severity
from service.engine.rules.all_rules import all_rules, findings, in_order
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from service.engine.rules.rule import Found, Rule

__all__ = [
    "NO_COMPANIONS",
    "Case",
    "CompanionHeaders",
    "Finding",
    "Found",
    "Rule",
    "Severity",
    "all_rules",
    "case_of",
    "findings",
    "in_order",
]
