"""The shape of a finding, and what it costs."""

from __future__ import annotations

from typing import NamedTuple

from service.engine.finding import Finding, Severity

__all__ = ["WORTH_SAYING", "Finding", "Found", "Severity", "error", "info", "warning"]

WORTH_SAYING = 1.1  # times as fast: less than this drowns in the error of the speed model


class Found(NamedTuple):
    """A finding, and how many times faster prompts and tokens would be without it, by the speed model (1: unknown)."""

    finding: Finding
    pp: float = 1.0
    tg: float = 1.0


def error(rule: str, message: str, fix: str | None, source: str) -> Found:
    """Return a finding of something that the engine refuses, or that does not fit."""
    return Found(Finding(rule=rule, severity="error", message=message, fix=fix, source=source))


def warning(rule: str, message: str, fix: str | None, source: str, *, pp: float = 1.0, tg: float = 1.0) -> Found:
    """Return a finding of something that costs speed or memory, or does not do what it looks like."""
    return Found(Finding(rule=rule, severity="warning", message=message, fix=fix, source=source), pp, tg)


def info(rule: str, message: str, fix: str | None, source: str) -> Found:
    """Return a finding that is good to know."""
    return Found(Finding(rule=rule, severity="info", message=message, fix=fix, source=source))
