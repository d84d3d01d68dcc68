"""Rows of `calibration`: calibrations fitted to this database's results; the newest is in force."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Engine, insert, select

from service.engine.calibration import Calibration
from service.store.engines import glance
from service.store.queries import accepted, several, value
from service.store.tables import calibration as table

_MOST = 50
VERSION_IN_FORCE = (
    select(table.c.version).order_by(table.c.made_at.desc(), table.c.version.desc()).limit(1).scalar_subquery()
)
_HEAD = (table.c.version, table.c.errors, table.c.n_results, table.c.made_at)
_VERSION = select(VERSION_IN_FORCE)


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Median relative errors of the previous and of this calibration, on the `kept_out` results outside the fit."""

    tg_before: float
    tg_after: float
    pp_before: float
    pp_after: float
    kept_out: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration without its parameters."""

    version: str
    errors: Errors
    n_results: int
    made_at: datetime


def add(engine: Engine, body: Calibration, errors: Errors, n_results: int, now: datetime) -> bool:
    """Store a calibration, which is in force from now on; return False if its version exists."""
    row = {"version": body.version, "body": msgspec.json.encode(body), "errors": msgspec.to_builtins(errors)}
    return accepted(engine, insert(table).values(**row, n_results=n_results, made_at=now))


def newest(engine: Engine) -> list[Stored]:
    """Return the newest 50, newest first."""
    wanted = select(*_HEAD).order_by(table.c.made_at.desc(), table.c.version.desc()).limit(_MOST)
    return several(engine, wanted, Stored)


def in_force(engine: Engine) -> Calibration | None:
    """Return the newest calibration, None if only the shipped one exists."""
    body = value(engine, select(table.c.body).order_by(table.c.made_at.desc(), table.c.version.desc()).limit(1))
    return None if body is None else msgspec.json.decode(body, type=Calibration)


def version_in_force(engine: Engine) -> str | None:
    with glance(engine) as connection:
        return connection.scalar(_VERSION)
