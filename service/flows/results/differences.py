"""What logs teach: printed buffers held against the running version's prediction; the same difference by its owners.

docs/trust.md says who counts: one account is one rig, and only accounts that are known for two weeks are any.
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
from service.engine.check.learning import (
    Difference,
    Lesson,
    Reported,
    Subject,
    lesson_of,
    reported_findings,
)
from service.engine.commands.parse import parse
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.finding import Finding
from service.engine.goal import Constraints
from service.engine.logs.read import LogReading, read_log
from service.engine.model import Model
from service.engine.rules.all_rules import in_order
from service.engine.rules.case import case_of
from service.engine.versions import ENGINE_MODEL
from service.flows.advice.reading import read_models
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

MOST_AT_ONCE = 100
"""Results of one run of the job: a new engine model compares all of them again, the newest first."""
_VERSION = int(ENGINE_MODEL)
_MODELS = 16  # whose headers are kept while results are compared: many are of one model
_MOST_NAMED = 5
_LATER = (HubUnavailable, HubBusy, HubRateLimited)
State: TypeAlias = Literal["unconfirmed", "open", "warned"]


class Entry(NamedTuple):
    """A difference that is not settled. `results`: some of those that show it, the newest first; `since`: the oldest.

    `unconfirmed`: shown by nobody who is known; `warned`: answers say so.
    """

    reported: Reported
    state: State
    results: tuple[str, ...]
    since: datetime


def compare_logs(context: Context) -> int:
    """Compare the results that this engine model has not compared, 100 at most; return how many.

    Where the Hub does not answer, the rest waits.
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
        store.leave(context.engine, row.id, _VERSION)  # whatever comes of it: it holds up no other
        log = _reading(row, results.read_log(context.engine, row.id))
        store.keep(context.engine, row.id, _VERSION, _lesson(row, model, log))
    return len(waiting)


def _model(context: Context, repo: str, revision: str, variant: str) -> Model:
    """Return the model of a result, read again where nothing is kept of it. Raises InvalidInput, the Hub's errors."""
    listing = list_repo(context, parse_reference(repo, revision))
    variants = [one for one in listing.variants if one.name == variant]
    if not variants:
        raise InvalidInput("the repo has no such variant", field="variant")
    return read_models(context.hub, listing, variants, in_full=True).variants[0].model


def _reading(row: StoredResult, log: str) -> LogReading:
    """What was seen of buffers, with what else its log says, if it is kept."""
    try:
        said = read_log(log)
    except InvalidInput:
        said = LogReading(buffers=(), graph_splits=None, offloaded=None, speeds=())
    return msgspec.structs.replace(said, buffers=row.seen.buffers, graph_splits=row.seen.graph_splits, speeds=())


def _lesson(row: StoredResult, model: Model, log: LogReading) -> Lesson | None:
    """What a result says of the prediction of its command, which is made by the rules of its own build."""
    command = command_of(row)
    if command is None or row.arch != model.architecture:
        return None
    try:
        parsed = parse(command, row.engine, build=row.build)
        return lesson_of(case_of(parsed, model, resolve(row.hardware), command, "cuda"), log)
    except AdvisorError:
        return None


def open_differences(context: Records) -> list[Entry]:
    """Return the differences that are not settled: those of most rigs first, then the newest."""
    names = store.architectures_that_differ(context.engine)
    found = [one for name in names for one in _of_architecture(context, name)]
    return sorted(found, key=lambda one: (-one.reported.rigs, -one.since.timestamp(), one.reported.name))


def reported_of(context: Records, architecture: str) -> list[Reported]:
    """Return the differences of an architecture that answers speak of."""
    return [one.reported for one in _of_architecture(context, architecture) if one.state == "warned"]


def with_differences(context: Records, body: AdviceBody, constraints: Constraints) -> AdviceBody:
    """Return the answer with a note at each config of which logs of several owners have shown otherwise, and a finding
    at the command in use."""
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
    """What logs agree or disagree about."""

    subject: Subject
    place: str
    part: str


def _of_architecture(context: Records, architecture: str) -> list[Entry]:
    shown = store.of_architecture(context.engine, architecture, context.clock() - OLD_ENOUGH)
    differ: dict[_Topic, dict[str, list[Shown]]] = defaultdict(lambda: defaultdict(list))
    agree: dict[_Topic, set[str]] = defaultdict(set)
    heard = set[tuple[str, _Topic]]()
    for one in shown:  # the newest first: an owner's last word counts
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
    """An entry by what came after an operator had settled it; None where nothing did."""
    at = acts.get(entry.reported.name)
    if at is None:
        return entry
    later = [one for one in them if one.received_at > at]
    return _entry(topic, later, agreeing) if later else None


def _entry(topic: _Topic, them: Sequence[Shown], agreeing: int) -> Entry:
    known = [one for one in them if one.owner]
    differences = [one.lesson.difference for one in known or them if one.lesson.difference is not None]
    off = [one.measured - one.expected for one in differences]
    reported = Reported(
        subject=topic.subject,
        part=differences[0].part,
        place=differences[0].place,
        way=differences[0].way,
        rigs=len(known),
        agreeing=agreeing,
        low=min(off),
        high=max(off),
    )
    state: State = "warned" if reported.is_borne_out else "open" if known else "unconfirmed"
    named = [one.result for one in known or them]
    return Entry(reported, state, tuple(named[:_MOST_NAMED]), min(one.received_at for one in known or them))
