"""An advice with what was measured of its configs, joined when it is read."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from service.engine.advice import AdviceBody
from service.engine.catalogue import resolve
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware
from service.engine.measured import measured_speed
from service.engine.measured.chosen import Measurement, chosen
from service.engine.planner.mine import parsed_command
from service.engine.planner.remeasured import Remeasured, reranked
from service.flows.cells import cell_of, files_of
from service.flows.context import Context
from service.flows.host_matching import match_kind
from service.flows.repos import stored_listing
from service.hub import RepoListing
from service.store import results
from service.store.advices import StoredAdvice
from service.store.results import StoredResult

_EVER = datetime(2020, 1, 1, tzinfo=UTC)


def with_results(context: Context, row: StoredAdvice, body: AdviceBody) -> AdviceBody:
    """Return the answer with what was measured of its configs, ranked again where that was on a like rig."""
    if not body.configs or row.revision is None or not results.any_of(context.engine, row.repo):
        return body
    listing = stored_listing(context, row.repo, row.revision)
    cells = _cells(row, body, listing) if listing else {}
    measured = results.shown(context.engine, list(cells.values()), _EVER, advice_id=row.id)
    if not measured:
        return body
    found = {name: best for name, cell in cells.items() if (best := _best(measured, cell, body.hardware))}
    new = reranked(body.configs, body.headline, body.goal, found)
    return msgspec.structs.replace(body, configs=new.configs, headline=new.headline)


def _cells(row: StoredAdvice, body: AdviceBody, listing: RepoListing) -> dict[str, str]:
    """Return the cell of each config that a host can be asked to run, by id."""
    try:
        command = parsed_command(row.request.constraints)
    except AdvisorError:
        return {}
    ids = [config.id for config in body.configs]
    picked = chosen(body.configs, body.goal, body.mine, command, ids, baseline=False).measurements
    return {one.config: cell for one in picked if one.config and (cell := _cell(one, listing))}


def _cell(one: Measurement, listing: RepoListing) -> str | None:
    try:
        return cell_of(one, files_of(listing, one.variant))
    except AdvisorError:
        return None


def _best(measured: list[StoredResult], cell: str, machine: Hardware) -> Remeasured | None:
    """The newest of the nearest: results come newest first."""
    try:
        advised = resolve(machine)
        found = [
            (match_kind(machine, advised, result.hardware, resolve(result.hardware)), result)
            for result in measured
            if result.cell == cell
        ]
    except AdvisorError:
        return None
    match, result = min(found, key=lambda one: one[0] != "exact", default=(None, None))
    if match is None or result is None:
        return None
    failed = result.failure.text if result.failure else None
    return Remeasured(match, measured_speed(result.rows), failed)
