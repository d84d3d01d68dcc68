"""Logs as JSON lines on standard error. Tracebacks never show the values of variables: these hold bodies and tokens."""

from __future__ import annotations

import sys

import structlog


def json_logs() -> None:
    """Make every structlog logger of this process write JSON lines."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
