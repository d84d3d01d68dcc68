"""What logs teach: printed buffers compared with predictions, and equal differences grouped by owner.

docs/trust.md says whose logs count: each account counts as one rig, once it has been known for two weeks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.advice import AdviceBody, AdvisedConfig, Mine
from service.engine.catalogue import resolve
from service.engine.check.learning import Difference, Lesson, Reported, Subject, lesson_of, reported_findings
from service.engine.commands.parse import parse
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.finding import Finding
from service.engine.goal import Constraints
from service.engine.logs.read import LogReading, read_log
from service.engine.model import Model
from service.engine.rules.all_rules import in_order
from service.engine.rules.case import case_of
from service.engine.versions import ENGINE_MODEL
from service.flows.advice.reading import models_in_full
from service.flows.advice.repos import list_repo
from service.flows.context import Context, Records
from service.flows.results.read_results import command_of
from service.flows.results.trust import OLD_ENOUGH
from service.hub.errors import HubBusy, HubRateLimited, HubUnavailable
from service.hub.references import parse_reference
from service.store.results import comparisons as store
from service.store.results import results
from service.store.results.comparisons import Shown
from service.store.results.results import StoredResult
from service.structs import made_from

MOST_AT_ONCE = 100
"""Results that one run of the job compares, newest first; a new engine model compares all of them again."""
_VERSION = int(ENGINE_MODEL)
_MODELS = 16  # kept while results are compared, since many share a model
_MOST_NAMED = 5
_LATER = (HubUnavailable, HubBusy, HubRateLimited)
State: TypeAlias = Literal["unconfirmed", "open", "warned"]


class Entry(NamedTuple):
    """An unsettled difference. `results`: some of those that show it, newest first; `since`: when the first did.

    `unconfirmed`: no known account shows it; `open`: one does; `warned`: enough do that answers mention it.
    """

    reported: Reported
    state: State
    results: tuple[str, ...]
    since: datetime


def compare_logs(context: Context) -> int:
    """Compare up to 100 results that this engine model has not compared yet; return how many.

    If the Hub does not answer, the rest waits.
    """
    read = lru_cache(maxsize=_MODELS)(partial(_model, context))
    waiting = store.waiting(context.engine, _VERSION, MOST_AT_ONCE)
    for n, row in enumerate(waiting):
        if row.model is None:
            continue
        try:
            model = read(row.model.repo, row.model.revision, row.variant)
        except _LATER:
            return n
        except AdvisorError:
            store.leave(context.engine, row.id, _VERSION)
            continue
        store.leave(context.engine, row.id, _VERSION)  # first, so that a result that crashes us delays no other
        log = _reading(row, results.read_log(context.engine, row.id))
        store.keep(context.engine, row.id, _VERSION, _lesson(row, model, log))
    return len(waiting)


def _model(context: Context, repo: str, revision: str, variant: str) -> Model:
    """Return a result's model, asking the Hub if nothing is stored. Raises InvalidInput and the Hub's errors."""
    found = models_in_full(context.hub, list_repo(context, parse_reference(repo, revision)), (variant,))
    if not found:
        raise InvalidInput("the repo has no such variant", field="variant")
    return found[variant]


def _reading(row: StoredResult, log: str) -> LogReading:
    """Return the buffers stored with a result, with whatever else its log says if it is kept."""
    try:
        said = read_log(log)
    except InvalidInput:
        said = LogReading()
    return msgspec.structs.replace(said, buffers=row.seen.buffers, graph_splits=row.seen.graph_splits, speeds=())


def _lesson(row: StoredResult, model: Model, log: LogReading) -> Lesson | None:
    """Return what a result teaches about its command's prediction, by the rules of its own build."""
    command = command_of(row)
    if command is None or row.arch != model.architecture:
        return None
    try:
        parsed = parse(command, row.engine, build=row.build)
        return lesson_of(case_of(parsed, model, resolve(row.hardware), command, "cuda"), log)
    except AdvisorError:
        return None


def open_differences(context: Records) -> list[Entry]:
    """Return the unsettled differences: those of most rigs first, then the newest."""
    names = store.architectures_that_differ(context.engine)
    found = [one for name in names for one in _of_architecture(context, name)]
    return sorted(found, key=lambda one: (-one.reported.rigs, -one.since.timestamp(), one.reported.name))


def reported_of(context: Records, architecture: str) -> list[Reported]:
    """Return an architecture's differences that answers mention."""
    return [one.reported for one in _of_architecture(context, architecture) if one.state == "warned"]


def with_differences(context: Records, body: AdviceBody, constraints: Constraints) -> AdviceBody:
    """Return the answer with notes on configs, and findings on the command in use, whose memory several owners' logs
    have shown to differ."""
    reported = reported_of(context, body.architecture) if body.configs and body.architecture else []
    if not reported:
        return body
    said = partial(_findings, body.architecture or "", reported, constraints)
    configs = [_noted(one, said(one)) for one in body.configs]
    mine = body.mine and msgspec.structs.replace(body.mine, findings=in_order([*said(body.mine), *body.mine.findings]))
    return msgspec.structs.replace(body, configs=configs, mine=mine)


def _findings(
    architecture: str, reported: Sequence[Reported], constraints: Constraints, one: AdvisedConfig | Mine
) -> list[Finding]:
    devices = [row.device for row in one.devices]
    return list(reported_findings(reported, constraints.build_of(one.engine), architecture, devices))


def _noted(config: AdvisedConfig, found: Sequence[Finding]) -> AdvisedConfig:
    notes = [one.message for one in found]
    return msgspec.structs.replace(config, notes=[*notes, *config.notes]) if notes else config


class _Topic(NamedTuple):
    """A quantity about which logs agree or disagree."""

    subject: Subject
    place: str
    part: str


def _of_architecture(context: Records, architecture: str) -> list[Entry]:
    shown = store.of_architecture(context.engine, architecture, context.clock() - OLD_ENOUGH)
    differ: dict[_Topic, dict[str, list[Shown]]] = defaultdict(lambda: defaultdict(list))
    agree: dict[_Topic, set[str]] = defaultdict(set)
    heard = set[tuple[str, _Topic]]()
    for one in shown:  # newest first, so that an owner's latest log counts
        for topic, difference in _said(one.lesson):
            if one.owner and (one.owner, topic) in heard:
                continue
            heard.add((one.owner, topic))
            if difference is not None:
                differ[topic][difference.way].append(one)
            elif one.owner:
                agree[topic].add(one.owner)
    made = [(topic, them) for topic, ways in differ.items() for them in ways.values()]
    entries = [_entry(topic, them, len(agree[topic])) for topic, them in made]
    acts = store.settled(context.engine, [one.reported.name for one in entries])
    return [
        found
        for one, (topic, them) in zip(entries, made, strict=True)
        if (found := _unsettled(one, topic, them, len(agree[topic]), acts))
    ]


def _said(lesson: Lesson) -> Iterator[tuple[_Topic, Difference | None]]:
    for name in lesson.agrees:
        place, _, part = name.partition(" ")
        yield _Topic(lesson.subject, place, part), None
    if lesson.difference is not None:
        yield _Topic(lesson.subject, lesson.difference.place, lesson.difference.part), lesson.difference


def _unsettled(
    entry: Entry, topic: _Topic, them: Iterable[Shown], agreeing: int, acts: Mapping[str, datetime]
) -> Entry | None:
    """Return an entry from the logs that came after an operator settled it; None if there are none."""
    at = acts.get(entry.reported.name)
    if at is None:
        return entry
    later = [one for one in them if one.received_at > at]
    return _entry(topic, later, agreeing) if later else None


def _entry(topic: _Topic, them: Sequence[Shown], agreeing: int) -> Entry:
    known = [one for one in them if one.owner]
    differences = [one.lesson.difference for one in known or them if one.lesson.difference is not None]
    off = [one.measured - one.expected for one in differences]
    reported = made_from(
        Reported,
        differences[0],
        subject=topic.subject,
        rigs=len(known),
        agreeing=agreeing,
        low=min(off),
        high=max(off),
    )
    state: State = "warned" if reported.is_borne_out else "open" if known else "unconfirmed"
    named = [one.result for one in known or them]
    return Entry(reported, state, tuple(named[:_MOST_NAMED]), min(one.received_at for one in known or them))
