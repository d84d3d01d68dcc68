"""Results as they are read: one, its log, or pages of them, which an opaque cursor continues."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.engine.commands.render import render
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.measured.identity import machine_name
from service.engine.run_flags import to_flags
from service.errors import ResultNotFound
from service.flows.accounts import Caller, viewer_of
from service.flows.context import Context, Records
from service.store.queries import is_id
from service.store.results import listed_results, results
from service.store.results.listed_results import SEEN, ListedResult
from service.store.results.results import StoredResult
from service.structs import iso_time, made_from
from service.wire.measuring.runs import RunOutcome
from service.wire.plain_text import clean
from service.wire.results.dumps import LICENCE
from service.wire.results.results import FiledModel, FiledRig, Result, ResultPage, ResultQuery, outcome

_MOST_NAME = 120
_RECEIVED = "received"  # the order of a list of results
_Instant = Annotated[datetime, Meta(tz=True)]


def cursor_of(order: str, position: tuple[float | datetime, str]) -> str:
    """Return where a page ended, the sort key and id of its last row, as text that is safe in a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode((order, *position))).decode().rstrip("=")


def position_in(cursor: str, order: str, *, is_time: bool) -> tuple[Any, str]:
    """Return the key and id that `cursor_of` was given. Raises InvalidInput for other text, or another order."""
    kind: Any = tuple[str, _Instant, str] if is_time else tuple[str, float, str]
    try:
        of, key, row_id = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
        if of == order and is_id(row_id):
            return key.astimezone(UTC) if is_time else key, row_id
    except (ValueError, OverflowError):  # bad Base64, bad JSON, or a time that no timezone shift can represent
        pass
    raise InvalidInput("this cursor does not come from a page in this order", field="cursor")


def day_of(text: str, field: str) -> datetime:
    """Return the start of a day in UTC. Raises InvalidInput for an invalid date."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidInput(f"{text} is not a valid date", field=field) from error


def read_result(context: Records, result_id: str, caller: Caller | None = None) -> Result:
    """Return a result with its prediction.

    A private host's results exist only for its owner, the asker and operators. Raises ResultNotFound.
    """
    found = listed_results.read(context.engine, result_id, viewer_of(caller)) if is_id(result_id) else None
    if found is None:
        raise ResultNotFound("there is no result with this id, or it is not shown", field="id")
    return as_result(found)


def require_visible(context: Records, caller: Caller | None, row: StoredResult) -> None:
    """Raise ResultNotFound if a private host measured it and this caller may not see it."""
    if row.state in SEEN:
        read_result(context, row.id, caller)


def read_log(context: Context, result_id: str, caller: Caller | None = None) -> str:
    """Return the reduced log of a result, empty if it has none. Raises ResultNotFound."""
    read_result(context, result_id, caller)
    return clean(results.read_log(context.engine, result_id))


def list_results(context: Context, query: ResultQuery) -> ResultPage:
    """Return a page of results, latest received first. Raises InvalidInput for an invalid cursor or date."""
    since, before = _day(query.since, "since"), _day(query.until, "until", timedelta(days=1))
    after = position_in(query.cursor, _RECEIVED, is_time=True) if query.cursor else None
    found = listed_results.page(context.engine, query, after, query.limit + 1, since, before)
    shown, following = found[: query.limit], None
    if len(found) > query.limit:
        last = shown[-1].result
        following = cursor_of(_RECEIVED, (last.created_at, last.id))
    return ResultPage(results=[as_result(one) for one in shown], next=following)


def as_result(found: ListedResult) -> Result:
    """Return a stored result in its public form."""
    row = found.result
    # Nothing of the hardware distinguishes one machine from its like.
    gpus = [msgspec.structs.replace(gpu, uuids=None, pci_order=None, device_order=None) for gpu in row.hardware.gpus]
    return made_from(
        Result,
        row,
        state_reason=clean(row.state_reason) if row.state_reason else None,
        model=_model(row),
        rig=FiledRig(
            name=safe(machine_name(row.gpus, row.cpu)),
            slug=row.rig_slug,
            vram_mib=row.vram_mib,
            cpu=safe(row.cpu) if row.cpu else None,
            ram_gib=row.ram_gib,
        ),
        hardware=msgspec.structs.replace(row.hardware, gpus=gpus, notes=None),
        build=safe(row.build) if row.build else None,
        command=command_of(row),
        failure=row.failure and msgspec.structs.replace(row.failure, text=clean(row.failure.text)),
        outcome=msgspec.structs.replace(outcome_of(row), build=safe(row.build or "")),
        remarks=clean(row.remarks) if row.remarks else None,
        contributor=found.contributor,
        host=found.host,
        has_log=found.has_log,
        licence=None if row.published is not None else LICENCE,
        source=found.source,
    )


def safe(name: str) -> str:
    """Return a name from a header, repo or paste made safe to show: printable, on one line, cut to length."""
    shown = " ".join(clean(name).split())
    return shown if len(shown) <= _MOST_NAME else shown[: _MOST_NAME - 1] + "…"


def _model(row: StoredResult) -> FiledModel:
    return made_from(
        FiledModel,
        row,
        name=safe(row.model_name),
        slug=row.model_slug,
        variant=safe(row.variant),
        arch=safe(row.arch) if row.arch else None,
        revision=row.model.revision if row.model else None,
    )


def command_of(row: StoredResult) -> str | None:
    """Return a result's command as given; for an agent's run, rendered from its flags."""
    if row.command is not None or row.flags is None or row.model is None:
        return clean(row.command) if row.command else None
    try:
        path = row.model.files[0].path if row.model.files else f"{row.variant}.gguf"
        return render(row.engine, "bench", to_flags(row.flags), model_path=path)
    except AdvisorError:
        return None


def _day(text: str | None, field: str, later: timedelta = timedelta()) -> datetime | None:
    try:
        return day_of(text, field) + later if text else None
    except OverflowError as error:
        raise InvalidInput(f"{text} is not a valid date", field=field) from error


def outcome_of(result: StoredResult) -> RunOutcome:
    """Return what a run measured, each figure next to its prediction, if there was one."""
    said, day = result.prediction, iso_time(result.measured_at)
    devices, speed = (said.devices, said.speed) if said else ([], [])
    return outcome(
        result.rows, result.seen, result.engine, devices, speed,
        build=result.build or "", measured_at=day, confirmed=result.confirmed, tier=result.tier,
    )  # fmt: skip
