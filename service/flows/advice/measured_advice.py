"""Joins measured results to an advice when it is read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec

from service.engine.advice import AdviceBody, AdvisedConfig
from service.engine.builds import date_of_today
from service.engine.catalogue import resolve
from service.engine.config import ENGINES
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware, Rig
from service.engine.measured.chosen import Measurement, chosen
from service.engine.measured.identity import MatchKind, match_kind, rig_identity
from service.engine.measured.nearby import PHASES, Nearness, Observation, Phase, apart
from service.engine.measured.residuals import Residual, all_on_cards
from service.engine.measured.summary import measured_speed
from service.engine.planner.ranking.current_command import parsed_command
from service.engine.planner.ranking.measured import MeasuredConfig, rerank, with_nearby_results, with_others_results
from service.engine.run.devices import rig_of_devices
from service.engine.versions import versions
from service.flows.advice.repos import stored_listing
from service.flows.context import Context
from service.flows.results.cells import cell_of, files_of
from service.flows.results.trust import BUILDS_APART, OLD_ENOUGH, built_on
from service.hub.listing import RepoListing
from service.store.advice.advices import StoredAdvice
from service.store.results import calibrations, results
from service.store.results.results import StoredResult
from service.store.viewers import BELIEVED, Viewer

_EVER = datetime(2020, 1, 1, tzinfo=UTC)
_ONLY_SAID = 0.5  # weight of a result that nobody confirmed, against one of a proven host: chosen, not measured


def with_results(context: Context, row: StoredAdvice, body: AdviceBody, viewer: Viewer) -> AdviceBody:
    """Return the answer with measured results joined, its configs ranked again by the first two kinds of them.

    Results of a config itself, on a like rig, by proven hosts or the viewer, replace its estimates. Results of similar
    configs correct the estimates of the others. Where there is neither, results of anybody on the same cards correct
    them by as little as an unproven report deserves.
    """
    if not body.configs or row.revision is None:
        return body
    try:  # the machine as the build of the first config sees it
        rig = rig_of_devices(body.hardware, [device.device for device in body.configs[0].devices])
    except AdvisorError:
        return body
    found = _measured(context, row, body, rig, viewer)
    exact = {name for name, one in found.items() if one.match == "exact"}
    near = _near(context, row, body, rig, viewer, exact)
    others = _others(context, body, rig, viewer, exact | near.keys())
    if not found and not near and not others:
        return body
    told = with_others_results(body.configs, body.headline, body.goal, others)
    near_too = with_nearby_results(told.configs, body.goal, near)
    new = rerank(near_too, told.headline, body.goal, found, told.configs)
    return msgspec.structs.replace(body, configs=new.configs, headline=new.headline)


def _others(context: Context, body: AdviceBody, rig: Rig, viewer: Viewer, known: set[str]) -> dict[str, list[Residual]]:
    """Return, for each config that runs entirely on the cards and has no better evidence, other people's results that
    ran entirely on the same cards with the same back ends."""
    names = [c.id for c in body.configs if c.id not in known and all_on_cards(c.flags, c.devices)]
    if not names:
        return {}
    slug = rig_identity(body.hardware, rig).slug
    them = results.on_cards(context.engine, slug, viewer, _of_today_since(), context.clock() - OLD_ENOUGH)
    calibration = versions(calibrations.version_in_force(context.engine)).calibration if them else ""
    seen = [
        Residual(owner, error, 1.0 if one.tier in BELIEVED else _ONLY_SAID)
        for owner, one in them
        if (error := _error(one, calibration)) and _is_on_cards(one)
        if _backends(rig) == _backends_of(one.hardware)
    ]
    return dict.fromkeys(names, seen) if seen else {}


def _is_on_cards(result: StoredResult) -> bool:
    flags, predicted = result.flags, result.prediction
    return flags is not None and predicted is not None and all_on_cards(flags, predicted.devices)


def _backends(rig: Rig) -> list[str]:
    return sorted(card.backend for card in rig.cards)


def _backends_of(hardware: Hardware) -> list[str]:
    try:
        return _backends(resolve(hardware))
    except AdvisorError:
        return []


def _measured(
    context: Context, row: StoredAdvice, body: AdviceBody, rig: Rig, viewer: Viewer
) -> dict[str, MeasuredConfig]:
    """Return the results of the configs themselves, by config id."""
    if row.revision is None or not results.any_of(context.engine, row.repo):
        return {}
    listing = stored_listing(context, row.repo, row.revision)
    cells = _cells(row, body, listing) if listing else {}
    measured = results.of_cells(context.engine, list(cells.values()), _EVER, viewer)
    measured = [one for one in measured if _is_of_today(one) and (one.failure is None or _is_own(one, viewer))]
    return {name: best for name, cell in cells.items() if (best := _best(measured, cell, body, rig))}


def _is_own(result: StoredResult, viewer: Viewer) -> bool:
    """Whether the viewer's own host measured it: a failure on one host says nothing of any other."""
    return result.account_id is not None and result.account_id == viewer.account_id


def _is_of_today(result: StoredResult) -> bool:
    """Whether the engine's build is at most BUILDS_APART days older than the one that answers assume."""
    today = date.fromisoformat(date_of_today(result.engine))
    return (today - built_on(result.engine, result.build, result.measured_at)).days <= BUILDS_APART


def _of_today_since() -> datetime:
    """Return the time before which no result can be of a current build (`_is_of_today`), whatever its engine."""
    oldest = min(date.fromisoformat(date_of_today(engine)) for engine in ENGINES) - timedelta(days=BUILDS_APART)
    return datetime(oldest.year, oldest.month, oldest.day, tzinfo=UTC)


def _near(
    context: Context, row: StoredAdvice, body: AdviceBody, rig: Rig, viewer: Viewer, exact: set[str]
) -> dict[str, list[Observation]]:
    """Return, for each config without results of its own, the results on a like machine as evidence for it."""
    slug = rig_identity(body.hardware, rig).slug
    them = results.near(context.engine, body.model_slug, slug, viewer) if body.model_slug else []
    known_ids = {one.id for one in them}
    anchors = results.near(context.engine, None, slug, viewer)
    them += [one for one in anchors if one.id not in known_ids]
    known = versions(calibrations.version_in_force(context.engine)).calibration if them else ""
    errors = ((one, _error(one, known)) for one in them)
    seen = [
        _Seen(one, error, one.model_slug == body.model_slug)
        for one, error in errors
        if error and _match(body, rig, one) == "exact"
    ]
    made = {config.id: [one.observation(row.repo, config) for one in seen] for config in body.configs}
    return {name: near for name, near in made.items() if near and name not in exact}


class _Seen(NamedTuple):
    result: StoredResult
    error: dict[Phase, float]
    same_model: bool

    def observation(self, repo: str, config: AdvisedConfig) -> Observation:
        """Return this result as evidence for a config of a repo's advice."""
        one = self.result
        kind = Nearness(
            variant=(one.repo, one.variant) == (repo, config.variant),
            engine=one.engine == config.engine,
            model=self.same_model,
        )
        return Observation(one.account_id or one.host_id or one.id, kind, self.error)


def _error(result: StoredResult, calibration: str) -> dict[Phase, float]:
    """Return log(measured / predicted) speed by phase, if the prediction was for this rig and is still current.

    `calibration`: the version in force now.
    """
    predicted = result.prediction
    if predicted is None or not predicted.own_rig or predicted.calibration != calibration:
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
    """Return the results cell of each config that a host can be asked to run, by config id."""
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


def _best(measured: list[StoredResult], cell: str, body: AdviceBody, rig: Rig) -> MeasuredConfig | None:
    """Return the newest result of the nearest machine: they come newest first."""
    found = [
        (match, result)
        for result in measured
        if result.cell == cell and (match := _match(body, rig, result)) is not None
    ]
    if not found:
        return None
    match, result = min(found, key=lambda one: one[0] != "exact")
    failed = result.failure.text if result.failure else None
    return MeasuredConfig(match, measured_speed(result.rows), failed)
