"""Builds of the engines: what changed when, and the rules, defaults and options of a build."""

from service.engine.builds.known import Build, BuildAsked, Change, parse_build, resolve_build, today
from service.engine.builds.rules import TODAY, BuildRules, MemoryRules

__all__ = [
    "TODAY",
    "Build",
    "BuildAsked",
    "BuildRules",
    "Change",
    "MemoryRules",
    "parse_build",
    "resolve_build",
    "today",
]
