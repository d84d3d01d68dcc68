"""An advice with what was measured of its configs, joined when it is read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

import msgspec

from service.engine.advice import AdviceBody, AdvisedConfig
from service.engine.builds import date_of_today
from service.engine.catalogue import resolve
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware, Rig
from service.engine.measured import measured_speed, rig_identity
from service.engine.measured.agreement import PHASES, Phase, apart
from service.engine.measured.chosen import Measurement, chosen
from service.engine.measured.nearby import Nearness, Observation
from service.engine.planner.mine import parsed_command
from service.engine.planner.remeasured import Remeasured, learned, reranked
from service.engine.versions import versions
from service.flows.cells import cell_of, files_of
from service.flows.context import Context
from service.flows.host_matching import match_kind
from service.flows.repos import stored_listing
from service.flows.trust import BUILDS_APART, built_on
from service.hub import RepoListing
from service.store import results
from service.store.advices import StoredAdvice
from service.store.results import StoredResult
from service.wire.runs import MatchKind, TrustTier

_EVER = datetime(2020, 1, 1, tzinfo=UTC)
BELIEVED: tuple[TrustTier, ...] = ("agent-run", "replicated")
"""Tiers whose results change what others are told. What was measured for an advice changes that advice always."""


def with_results(context: Context, row: StoredAdvice, body: AdviceBody) -> AdviceBody:
    """Return the answer with what was measured: of its configs on a like rig in place of their estimates, of near ones
    as a correction of the others; ranked again where that changes something."""
    if not body.configs or row.revision is None:
        return body
    found = _measured(context, row, body)
    near = _near(context, row, body, {name for name, one in found.items() if one.match == "exact"})
    if not found and not near:
        return body
    new = reranked(learned(body.configs, body.goal, near), body.headline, body.goal, found, body.configs)
    return msgspec.structs.replace(body, configs=new.configs, headline=new.headline)


def _measured(context: Context, row: StoredAdvice, body: AdviceBody) -> dict[str, Remeasured]:
    """What was measured of the configs themselves, by id."""
    if row.revision is None or not results.any_of(context.engine, row.repo):
        return {}
    listing = stored_listing(context, row.repo, row.revision)
    cells = _cells(row, body, listing) if listing else {}
    measured = results.shown(context.engine, list(cells.values()), _EVER, advice_id=row.id, least=BELIEVED)
    measured = [result for result in measured if _is_of_today(result)]
    return {name: best for name, cell in cells.items() if (best := _best(measured, cell, body.hardware))}


def _is_of_today(result: StoredResult) -> bool:
    """Whether an engine's build is as new as the one that answers are for, but for two months."""
    today = date.fromisoformat(date_of_today(result.engine))
    return (today - built_on(result.engine, result.build, result.measured_at)).days <= BUILDS_APART


def _near(context: Context, row: StoredAdvice, body: AdviceBody, exact: set[str]) -> dict[str, list[Observation]]:
    """What was measured of the same model on the same cards, as each config that was not measured itself is near it."""
    try:
        rig = resolve(body.hardware)
    except AdvisorError:
        return {}
    slug = rig_identity(body.hardware, rig).slug
    them = results.near(context.engine, body.model_slug, slug, row.id, BELIEVED) if body.model_slug else []
    seen = [_Seen(one, match, error) for one in them if (error := _error(one)) and (match := _match(body, rig, one))]
    made = {config.id: [one.beside(row.repo, config) for one in seen] for config in body.configs}
    return {name: near for name, near in made.items() if near and name not in exact}


class _Seen(NamedTuple):
    result: StoredResult
    match: MatchKind
    error: dict[Phase, float]

    def beside(self, repo: str, config: AdvisedConfig) -> Observation:
        """Return it as a config of a repo's advice sees it."""
        one = self.result
        kind = Nearness(
            rig=self.match == "exact",
            variant=(one.repo, one.variant) == (repo, config.variant),
            engine=one.engine == config.engine,
        )
        return Observation(one.account_id or one.host_id or one.id, kind, self.error)


def _error(result: StoredResult) -> dict[Phase, float]:
    """Logarithm of measured over predicted speed, where that was predicted of this rig as it would be today."""
    predicted = result.prediction
    if predicted is None or not predicted.own_rig or predicted.calibration != versions().calibration:
        return {}
    if not _is_of_today(result):
        return {}
    points = measured_speed(result.rows)
    found = {phase: apart(points, predicted.speed, phase) for phase in PHASES}
    return {phase: -off for phase, off in found.items() if off is not None}


def _match(body: AdviceBody, rig: Rig, result: StoredResult) -> MatchKind | None:
    try:
        return match_kind(body.hardware, rig, result.hardware, resolve(result.hardware))
    except AdvisorError:
        return None


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
