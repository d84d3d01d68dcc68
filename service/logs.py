"""Logs: one JSON line per event on standard error, or readable lines at a terminal.

Event names are a closed list; docs/logs.md explains them and their fields. Tracebacks never show the values of
variables, which hold bodies and tokens. Only the standard library and msgspec, because agents use this module too.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TextIO, TypeAlias, get_args

import msgspec

EventName: TypeAlias = Literal[
    "request", "request.failed", "request.overdue", "limit.uncounted", "advice.queued", "advice.started",
    "advice.ready", "advice.failed", "advice.retried", "validation.created", "run.leased", "run.reported",
    "runs.taken_back", "question.taken", "question.answered", "question.postponed", "question.failed",
    "question.abandoned", "question.lost", "message.refused", "message.gone", "message.undelivered",
    "hub.asked_again", "hub.refused", "address.refused", "redis.silent", "database.silent",
    "database.made", "database.newer", "valkey.ended", "process.started", "process.ending", "process.ended",
    "process.refused", "task.failed", "job.ended", "calibration.refused", "rows.purged", "removal.asked", "run.began",
    "run.ended", "run.crashed", "agent.idle", "download.evicted", "library",
]  # fmt: skip
Role: TypeAlias = Literal["api", "worker", "bots", "agent"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
_LONGEST_TEXT, _LONGEST_TRACEBACK = 2_000, 16_000
_NEVER_BELOW_WARNING = ("httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "urllib3", "asyncio")
_LIBRARIES = ("rq", "sqlalchemy", "uvicorn", "alembic", "redis", "litestar", "concurrent")
_known: ContextVar[dict[str, object] | None] = ContextVar("known", default=None)
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Log:
    """Writes events, adding the fields that `bound` and `note` set."""

    def __init__(self, name: str) -> None:
        """`name`: the part of the program; the logger is `advisor.NAME`."""
        self._logger = logging.getLogger(f"advisor.{name}")

    def debug(self, event: EventName, **fields: object) -> None:
        """Write an event that matters only when looking for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: EventName, **fields: object) -> None:
        """Write an expected event."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: EventName, **fields: object) -> None:
        """Write an event that should not happen and needs no action."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: EventName, exc: BaseException | None = None, **fields: object) -> None:
        """Write an event that somebody should look at, with the traceback of `exc`."""
        self._write(logging.ERROR, event, fields, exc)

    def _write(self, level: int, event: EventName, fields: dict[str, object], exc: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            said = {name: value for name, value in {**known(), **fields}.items() if value is not None}
            self._logger.handle(_Record(self._logger.name, level, event, said, exc))


class _Record(logging.LogRecord):
    """One event. A program that has not called `configure` sees it as one line of text."""

    def __init__(self, name: str, level: int, event: str, fields: dict[str, object], exc: BaseException | None) -> None:
        super().__init__(name, level, "", 0, event, None, (type(exc), exc, exc.__traceback__) if exc else None)
        self.event, self.fields = event, fields

    def getMessage(self) -> str:
        """Return the event with its fields."""
        return " ".join((self.event, *(f"{name}={_shown(value)}" for name, value in self.fields.items())))


def known() -> dict[str, object]:
    """Return the fields set for the work at hand."""
    return _known.get() or {}


def request_id() -> str | None:
    """Return the id of the request being handled."""
    found = known().get("request_id")
    return found if isinstance(found, str) else None


@contextmanager
def bound(**fields: object) -> Iterator[dict[str, object]]:
    """Add fields to every line of the block, also in threads that it starts; None values are left out.

    Yields all fields, including those that `note` adds later.
    """
    inside = {**known(), **{name: value for name, value in fields.items() if value is not None}}
    token = _known.set(inside)
    try:
        yield inside
    finally:
        _known.reset(token)


def note(**fields: object) -> None:
    """Add fields for the rest of the enclosing `bound` block, beyond the calling function too."""
    inside = _known.get()
    if inside is not None:
        inside.update(fields)


def configure(role: Role, level: Level = "info") -> None:
    """Make this process write its events, and libraries' messages, to standard error. May be called again."""
    own = level.upper()
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _StandardError)]:
        root.removeHandler(handler)
    root.addHandler(_StandardError(role))
    root.setLevel(logging.WARNING)
    logging.getLogger("advisor").setLevel(own)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else max(logging.WARNING, _number(own)))
    for name in _NEVER_BELOW_WARNING:
        logging.getLogger(name).setLevel(max(logging.WARNING, _number(own)))


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level]


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever is standard error at the moment."""

    def __init__(self, role: Role) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(Readable() if sys.stderr.isatty() else JsonLines(role))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Where lines go."""
        return sys.stderr


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "timestamp": _instant(record.created),
            "level": record.levelname.lower(),
            "role": self._role,
            "pid": os.getpid(),
            "event": _event(record),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_LONGEST_TRACEBACK:]
        return _encode(line).decode()


class Readable(logging.Formatter):
    """Formats a record as a line of text, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback below it."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        said = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname.lower():7} {_event(record)}  {said}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _event(record: logging.LogRecord) -> str:
    return record.event if isinstance(record, _Record) else "library"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    if isinstance(record, _Record):
        found = record.fields
    else:
        found = {**known(), "logger": record.name, "detail": record.getMessage()}
    return {name: value[:_LONGEST_TEXT] if isinstance(value, str) else value for name, value in found.items()}


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)


def _instant(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
