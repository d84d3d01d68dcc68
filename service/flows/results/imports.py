"""Results from elsewhere: published ones, shipped with the package so that the board is useful from the first day, and
another service's, from its newest dump, checked against that service's key.

Published results are their authors' words and not ours to license: each names who published it and where, is excluded
from the data's licence, and is removed for good if its author asks. Imported results are self-reported whatever they
were there: they are shown with the service that they come from, and move estimates as anybody's do. A dump is complete,
so results that it no longer has are removed here. Imported results are not in this service's dumps, so they never come
back to their origin.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
from sqlalchemy import Engine

from service.engine.catalogue import resolve
from service.engine.config import Engine as EngineName
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured.identity import ModelIdentity, rig_identity
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow
from service.flows.context import Records
from service.flows.measuring.signed_calls import is_signed
from service.flows.results.dumps import text_of
from service.flows.results.trust import judged
from service.outgoing.client import new_client
from service.outgoing.rules import Origins, Refused
from service.store.queries import is_id
from service.store.results import board, results, sources
from service.store.results.results import StoredResult, filed_under, rows_key_of
from service.store.results.sources import Source
from service.store.results.trust import writing
from service.structs import made_from
from service.wire.plain_text import plainly
from service.wire.results.dumps import SCHEMA_VERSION, DumpedResult, DumpList
from service.wire.results.results import Published

REMOVED = "removed at its author's request"
_FEW = 100
_MOST_PACKED, _MOST_LINE, _MOST_LINES = 256 << 20, 4 << 20, 1_000_000
_MOST_ROWS, _MOST_SPEED = 1_000, 1e7
_TIMEOUT, _SECONDS = httpx.Timeout(60, connect=10), 900.0


def import_published(engine: Engine, now: datetime) -> int:
    """Add the published results that are missing; return how many. A removed one is not added again.

    The board is rebuilt if an older version of the service made it.
    """
    predicted = predictions()
    several = [_published(one, now, predicted.get(one.id)) for one in published_results()]
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


def _published(one: PublishedResult, now: datetime, prediction: Prediction | None) -> StoredResult:
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


class Imported(NamedTuple):
    """The outcome of an import: how many results were added, removed and known, and those refused (id, reason).

    `left_out`: those that their service doubts itself, with its reason.
    """

    added: int
    removed: int
    known: int
    refused: list[tuple[str, str]]
    left_out: Sequence[tuple[str, str]] = ()


def import_results(context: Records, address: str, key: str) -> Imported:
    """Import the newest dump of the service at `address` (or of a folder with a `dumps.json`).

    `key`: the key it must be signed with. Raises InvalidInput if there is no dump, its signature or hash is wrong, or
    it is older than one already imported from there.
    """
    made_at, packed = _fetched(address, key)
    known = sources.read(context.engine, key)
    if known is not None and made_at < known.made_at:
        raise InvalidInput(f"this dump was made {made_at:%Y-%m-%d %H:%M} UTC, an imported one later", field="FROM")
    rows, refused, left_out = list[StoredResult](), list[tuple[str, str]](), list[tuple[str, str]]()
    for line in _lines(packed):
        try:
            dumped = msgspec.json.decode(line, type=DumpedResult)
            if (why := _why_not(dumped)) is not None:
                left_out.append((dumped.id if is_id(dumped.id) else "a line", why[:200]))
            else:
                rows.append(judged(context, _stored(dumped, key, context.clock())))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            refused.append(("a line", f"no result: {error}"[:200]))
        except AdvisorError as error:
            said = str(msgspec.json.decode(line)["id"])
            refused.append((said if is_id(said) else "a line", error.detail[:200]))
    with writing(context.engine) as connection:
        sources.put_in(connection, Source(key=key, address=address[:300], made_at=made_at, imported_at=context.clock()))
        removed = sources.remove_in(connection, key, {row.id for row in rows})
        added = sources.add_in(connection, rows)
    return Imported(added, removed, len(rows) - added, refused, tuple(left_out))


def forget(context: Records, key: str) -> int:
    """Remove a source with all its results; return how many. Raises InvalidInput if nothing came from this key."""
    if sources.read(context.engine, key) is None:
        raise InvalidInput("nothing was imported under this key", field="--key")
    with writing(context.engine) as connection:
        removed = sources.remove_in(connection, key, set())
        sources.drop_in(connection, key)
    return removed


def _fetched(address: str, key: str) -> tuple[datetime, bytes]:
    """Return when the newest JSONL dump of a service, or of a folder, was made, and its bytes, after checking its
    signature and hash. Raises InvalidInput."""
    read = partial(_over_http if address.startswith(("http://", "https://")) else _in_folder, address)
    try:
        listed = msgspec.json.decode(read("", _MOST_LINE), type=DumpList)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{address} has no list of dumps: {error}", field="FROM") from error
    dump = next((one for one in listed.dumps if one.format == "jsonl"), None)
    if dump is None or listed.schema_version != SCHEMA_VERSION or "/" in dump.name:
        raise InvalidInput(f"{address} has no dump of version {SCHEMA_VERSION} yet", field="FROM")
    packed = read(dump.name, _MOST_PACKED)
    if not is_signed(key, dump.signature or "", text_of(dump.name, dump.made_at, dump.sha256)):
        theirs = f": the service says {listed.key}" if listed.key and listed.key != key else ""
        raise InvalidInput(f"the newest dump is not signed with this key{theirs}", field="--key")
    if hashlib.sha256(packed).hexdigest() != dump.sha256:
        raise InvalidInput("the newest dump is not the file that was signed", field="FROM")
    return _instant(dump.made_at), packed


def _over_http(address: str, name: str, most: int) -> bytes:
    url = f"{address.rstrip('/')}/v1/dumps{f'/{name}' if name else ''}"
    try:
        with new_client(Origins([address]), timeout=_TIMEOUT, max_bytes=most, max_seconds=_SECONDS) as client:
            return client.get(url).raise_for_status().content
    except (httpx.HTTPError, Refused, ValueError) as error:
        raise InvalidInput(f"{url} does not answer as a service: {plainly(error)}", field="FROM") from error


def _in_folder(address: str, name: str, most: int) -> bytes:
    folder = Path(address)
    try:
        with (folder / (name or "dumps.json")).open("rb") as file:
            found = file.read(most + 1)
    except OSError as error:
        raise InvalidInput(f"{folder} has no {name or 'dumps.json'}: {error.strerror}", field="FROM") from error
    if len(found) > most:
        raise InvalidInput(f"{folder / name} is larger than {most >> 20} MiB", field="FROM")
    return found


def _lines(packed: bytes) -> Iterator[bytes]:
    """Yield the lines of a gzip file, decompressed piece by piece. Raises InvalidInput past limits of size."""
    unpacking, rest, n_lines = zlib.decompressobj(wbits=31), b"", 0
    for at in range(0, len(packed), 1 << 16):
        data = packed[at : at + (1 << 16)]
        while data:
            rest += unpacking.decompress(data, _MOST_LINE)
            data = unpacking.unconsumed_tail
            *whole, rest = rest.split(b"\n")
            n_lines += len(whole)
            if len(rest) > _MOST_LINE or n_lines > _MOST_LINES:
                raise InvalidInput("a dump with longer lines, or more of them, than results have", field="FROM")
            yield from whole


def _why_not(one: DumpedResult) -> str | None:
    """Return why a result is not taken over: its service doubts it, or nobody measured it there; else None."""
    if one.state != "shown":
        return f"{one.state} there: {one.state_reason}" if one.state_reason else f"{one.state} there"
    return f"published elsewhere: {one.published.url}" if one.published is not None else None


def _stored(one: DumpedResult, key: str, now: datetime) -> StoredResult:
    """Return a result as a row. Raises InvalidInput for what no result has."""
    if not is_id(one.id):
        raise InvalidInput("its id is none", field="id")
    model = made_from(ModelIdentity, one.model)
    row = StoredResult(
        id=one.id,
        origin="submitted",
        tier="self-reported",
        engine=one.engine,
        build=one.build,
        repo=one.model.repo,
        variant=one.model.variant,
        flags=one.flags,
        hardware=one.hardware,
        rows=one.rows,
        rows_key=rows_key_of(one.model.slug, one.engine, one.rows),
        failure=one.failure,
        prediction=one.prediction if _is_usable(one.prediction) else None,
        command=one.command,
        remarks=one.remarks,
        source=key,
        source_owner=one.owner,
        measured_at=_instant(one.measured_at),
        created_at=now,
        **filed_under(model, rig_identity(one.hardware, resolve(one.hardware))),
    )
    if len(row.rows) > _MOST_ROWS:
        raise InvalidInput(f"it has {len(row.rows):,} rows", field="rows")
    if (wrong := sources.unfit(row)) is not None:
        raise InvalidInput(f"no result is kept with such a value: {wrong}", field="result")
    return row


def _is_usable(prediction: Prediction | None) -> bool:
    """Whether a prediction's figures are sane enough to compare speeds with."""
    if prediction is None:
        return True
    speeds = [
        n for at in prediction.speed for n in (at.pp_low, at.pp_tps, at.pp_high, at.tg_low, at.tg_tps, at.tg_high)
    ]
    return all(0 < n < _MOST_SPEED for n in speeds) and prediction.most_tg >= 0 and prediction.most_pp >= 0


def _instant(text: str) -> datetime:
    """Return a time with its zone. Raises InvalidInput."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput(f"{text[:40]!r} is no time with its zone", field="FROM")
    return found
