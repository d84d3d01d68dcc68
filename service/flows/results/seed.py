"""Published results that are shipped with the package, so that the board is useful from the first day.

They are their authors' words and not ours to license: each names who published it and where, is excluded from the
data's licence, and is removed for good if its author asks.
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

REMOVED = "removed at its author's request"
_FEW = 100


def import_published(engine: Engine, now: datetime) -> int:
    """Add the published results that are missing; return how many. A removed one is not added again.

    The board is rebuilt if an older version of the service made it.
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
    """Remove a published result for good; `name` is its id here or in the file. Return its id. Raises InvalidInput."""
    ids = {one.id: id_of(one.id) for one in published_results()}
    result_id = ids.get(name, name)
    found = results.read(engine, result_id)
    if found is None or found.origin != "published":
        raise InvalidInput(f"no published result has the id {name[:80]}: `advisor admin seed` adds them", field="ID")
    with writing(engine) as connection:
        results.change(connection, result_id, state="deleted", state_reason=REMOVED, command=None, remarks=None)
    return result_id


def published_results() -> Iterator[PublishedResult]:
    """Yield the published results in the package."""
    lines = resources.files("service.data").joinpath("published.jsonl").read_bytes().splitlines()
    yield from (msgspec.json.decode(line, type=PublishedResult) for line in lines)


def predictions() -> dict[str, Prediction]:
    """Return the predictions of published results by their ids in the file; some have none (`bench.published`)."""
    lines = resources.files("service.data").joinpath("predictions.jsonl").read_bytes().splitlines()
    return {one.id: one.prediction for one in (msgspec.json.decode(line, type=PredictedResult) for line in lines)}


def id_of(name: str) -> str:
    """Return the id of a published result, the same in every database."""
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
    """One published result. `command` is text, often a fragment: it is shown and never parsed.

    `model`: the name as published, the shape from the model's published config. `remarks`: what was added from other
    sources because the author did not state it.
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
    """A published result's prediction, by parameters fitted without its author's and its machine's results."""

    id: str
    prediction: Prediction
