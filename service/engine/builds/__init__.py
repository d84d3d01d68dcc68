"""Builds of the engines: what changed when, and the rules, defaults and options of a build."""

from service.engine.builds.history import BuildChange
from service.engine.builds.lookup import (
    Build,
    BuildAsked,
    date_of_today,
    day_before,
    months_between,
    parse_build,
    resolve_build,
    rule_since,
    today,
)
from service.engine.builds.rules import TODAY, BuildRules, MemoryRules

__all__ = [
    "TODAY",
    "Build",
    "BuildAsked",
    "BuildChange",
    "BuildRules",
    "MemoryRules",
    "date_of_today",
    "day_before",
    "months_between",
    "parse_build",
    "resolve_build",
    "rule_since",
    "today",
]
