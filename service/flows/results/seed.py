"""Published results, shipped with the package, so that the board is of use on its first day.

They are their authors' words, not ours to licence: each is marked with who published it and where, is left out of the
data's licence, and goes for good when its author asks for it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources

import msgspec
from sqlalchemy import Engine

from service.engine.catalogue import resolve
from service.engine.config import Engine as EngineName
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured.identity import ModelIdentity, rig_identity
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow
from service.store.results import board, results
from service.store.results.results import StoredResult, filed_under, rows_key_of
from service.store.results.trust import writing
from service.structs import made_from
from service.wire.results.results import Published

REMOVED = "removed on request of its author"
_FEW = 100


def import_published(engine: Engine, now: datetime) -> int:
    """Add the published results that are not here yet; return how many. One that was removed is not added again.

    The board is rebuilt where an older version of the service made it.
    """
    predicted = predictions()
    several = [_stored(one, now, predicted.get(one.id)) for one in published_results()]
    added = 0
    for first in range(0, len(several), _FEW):
        with writing(engine) as connection:
            added += results.insert_missing(connection, several[first : first + _FEW])
    board.bring_up_to_date(engine)
    return added


def remove_published(engine: Engine, name: str) -> str:
    """Take a published result off for good; `name`: its id here or in the file. Returns its id. Raises InvalidInput."""
    ids = {one.id: id_of(one.id) for one in published_results()}
    result_id = ids.get(name, name)
    found = results.read(engine, result_id)
    if found is None or found.origin != "published":
        raise InvalidInput(f"no published result has the id {name[:80]}: `advisor admin seed` adds them", field="ID")
    with writing(engine) as connection:
        results.change(connection, result_id, state="deleted", state_reason=REMOVED, command=None, remarks=None)
    return result_id


def published_results() -> Iterator[PublishedResult]:
    """Yield the published results that the package has."""
    lines = resources.files("service.data").joinpath("published.jsonl").read_bytes().splitlines()
    yield from (msgspec.json.decode(line, type=PublishedResult) for line in lines)


def predictions() -> dict[str, Prediction]:
    """Return what is predicted of published results, by their ids in the file: of most (`bench.published`)."""
    lines = resources.files("service.data").joinpath("predictions.jsonl").read_bytes().splitlines()
    return {one.id: one.prediction for one in (msgspec.json.decode(line, type=PredictedResult) for line in lines)}


def id_of(name: str) -> str:
    """Return the id that a published result has in every database."""
    digest = hashlib.sha256(f"published {name}".encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _stored(one: PublishedResult, now: datetime, prediction: Prediction | None) -> StoredResult:
    rows = list(one.rows)
    return made_from(
        StoredResult,
        one,
        id=id_of(one.id),
        origin="published",
        tier="self-reported",
        model=None,
        rows=rows,
        rows_key=rows_key_of(one.model.slug, one.engine, rows),
        prediction=prediction,
        measured_at=datetime.fromisoformat(one.published.date).replace(tzinfo=UTC),
        created_at=now,
        **filed_under(one.model, rig_identity(one.hardware, resolve(one.hardware))),
    )


class PublishedResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published result. `command` is text, often a fragment: it is shown and never read as a config.

    `model`: its name as published, its shape as the model's published config has it. `remarks`: what the author did not
    state and is taken from elsewhere.
    """

    id: str
    published: Published
    engine: EngineName
    build: str | None
    variant: str
    model: ModelIdentity
    hardware: Hardware
    rows: tuple[MeasuredRow, ...]
    command: str | None
    remarks: str | None


class PredictedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of a published result by parameters that saw neither its author nor its machine."""

    id: str
    prediction: Prediction
