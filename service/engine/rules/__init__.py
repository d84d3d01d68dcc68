"""The engines' rules: what is wrong with a command, what it costs, and what mends it. One small function a rule.

A rule takes a Case (a command on a machine, its memory computed) and yields what it found. Figures that a rule states
come from the memory and speed models with the mended flags or placement, never from the rule itself.
"""

from service.engine.finding import Finding, Severity
from service.engine.rules.all_rules import RULES, findings, in_order
from service.engine.rules.beside import NOTHING, Beside
from service.engine.rules.case import Case, case_of
from service.engine.rules.rule import Found, Rule

__all__ = [
    "NOTHING",
    "RULES",
    "Beside",
    "Case",
    "Finding",
    "Found",
    "Rule",
    "Severity",
    "case_of",
    "findings",
    "in_order",
]
