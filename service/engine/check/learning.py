"""What a log teaches: the first of its buffers that differs from what is computed, and what many such logs say.

One difference of placement or of a graph moves everything after it, so that of a run only the first part that differs
is told: weights, then caches, then compute buffers, then output, then the splits of the graph; cards before RAM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from service.engine.builds import Build
from service.engine.check.compare import compare_buffers
from service.engine.check.report import Compared
from service.engine.commands.companions import draft_of, projector_of
from service.engine.config import CPU, Engine
from service.engine.finding import Finding
from service.engine.logs.read import LogReading
from service.engine.rules.case import Case

Part: TypeAlias = Literal["weights", "kv", "compute", "output", "graph_splits"]
Place: TypeAlias = Literal["card", "CPU"]
Way: TypeAlias = Literal["below", "above"]
LEAST_RIGS = 3
"""Rigs, each of another owner, that must show the same difference before answers say so."""
_LEAST_MIB = 1.0  # below it nobody's memory runs out; sums of many printed hundredths, and whole MiB, are off by less
_PARTS: tuple[Part, ...] = get_args(Part)
_PLACES: tuple[Place, ...] = get_args(Place)
_CONTEXT_OF_ITS_OWN = "llama-bench"  # makes one for each test, of its size: of such a log the weights alone compare
_MAPPED = "_Mapped"  # weights of a mapped file on a card that shares the RAM (MTL0_Mapped): a range, as in RAM
_NAMES = {"weights": "weights", "kv": "the cache", "compute": "the compute buffer", "output": "the output buffer"}


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What logs are compared of. `era`: of the build, as `Build.era`. `backend`: of its cards, CPU without any."""

    engine: Engine
    architecture: str
    era: str
    backend: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of a log that is not as computed; in MiB, splits as their number."""

    part: Part
    place: Place
    way: Way
    measured: float
    expected: float


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What one log says of the prediction. `agrees`: the parts, as "PLACE PART", up to the first that differs."""

    subject: Subject
    agrees: tuple[str, ...]
    difference: Difference | None


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The same difference on several rigs. `low`, `high`: of measured less expected, the least and the most of them.

    `agreeing`: rigs of other owners on which this part is as computed.
    """

    subject: Subject
    part: Part
    place: Place
    way: Way
    rigs: int
    agreeing: int
    low: float
    high: float

    @property
    def name(self) -> str:
        """What operators call it; the same for the same difference."""
        of = self.subject
        return ":".join((of.engine, of.architecture, of.era, of.backend, self.place, self.part, self.way))

    @property
    def is_borne_out(self) -> bool:
        """Whether answers say so: enough rigs show it, and more than those on which all is as computed."""
        return self.rigs >= LEAST_RIGS and self.rigs > self.agreeing


def lesson_of(case: Case, log: LogReading) -> Lesson | None:
    """Return what a log says of the prediction of its command; None where it can say nothing of it.

    That is so of another model, command or machine, of words that are not understood, of companions, whose buffers have
    the same names, of a build before those that are described, and where the engine goes by what is free: places by it,
    or does without pipelining. A log that is as computed without pipelining is of a run that had less free than stated.
    """
    found = _lesson(case, log)
    if found is None or found.difference is None or len(case.devices) < 2:
        return found
    build = msgspec.structs.replace(case.parsed.build, max_copies=1)
    parsed = msgspec.structs.replace(case.parsed, build=build)
    without = _lesson(msgspec.structs.replace(case, parsed=parsed), log)
    return without if without is not None and without.difference is None else found


def _lesson(case: Case, log: LogReading) -> Lesson | None:
    if not log.buffers or not _is_fully_modelled(case) or not _is_of(case, log):
        return None
    compared = [one for one in compare_buffers(case, log) if _says_something(case, one)]
    by_part: dict[tuple[Part, Place], list[Compared]] = {}
    for one in compared:
        if part := next((part for part in _PARTS if part == one.what), None):
            by_part.setdefault((part, "CPU" if one.device == CPU else "card"), []).append(one)
    agrees = list[str]()
    for key in sorted(by_part, key=lambda key: (_PARTS.index(key[0]), _PLACES.index(key[1]))):
        off = max(by_part[key], key=lambda one: abs(one.measured - one.expected) * _is_off(one))
        if _is_off(off):
            return Lesson(subject=_subject(case), agrees=tuple(agrees), difference=_difference(off, *key))
        agrees.append(f"{key[1]} {key[0]}")
    return Lesson(subject=_subject(case), agrees=tuple(agrees), difference=None) if agrees else None


def _difference(one: Compared, part: Part, place: Place) -> Difference:
    way: Way = "below" if one.measured < one.expected else "above"
    return Difference(part=part, place=place, way=way, measured=one.measured, expected=one.expected)


def _is_off(one: Compared) -> bool:
    return one.verdict != "within" and abs(one.measured - one.expected) >= _LEAST_MIB


def _is_fully_modelled(case: Case) -> bool:
    """Whether the prediction is one for just this command: all of it understood, nothing next to the model."""
    parsed, build = case.parsed, case.parsed.build
    unclear = parsed.unknown or parsed.varied or parsed.refused or case.unknown_devices or case.fit_fails
    unclear = unclear or case.fit_places or (case.gives_up_pipeline and build.max_copies != 1)
    unclear = unclear or any(rule.refused for rule in case.rules)
    unclear = unclear or any(name.startswith("GGML_") for name in parsed.env)
    images = projector_of(parsed)
    companions = draft_of(parsed) or (images is not None and images.path) or case.companions
    return not unclear and not companions and not build.older and build.rules.memory.described


def _is_of(case: Case, log: LogReading) -> bool:
    """Whether a log is of this model and command on these devices."""
    if log.architecture not in (None, case.model.architecture) or log.engine not in (None, case.engine):
        return False
    if any(one.what == "offloaded" and one.verdict != "within" for one in compare_buffers(case, log)):
        return False
    used = {row.device for row in case.table if row.device != CPU and row.weights_mib + row.kv_mib > 0}
    named = {one.device for one in log.buffers if not one.device.endswith(_MAPPED)}
    return used <= named <= {row.device for row in case.table}


def _says_something(case: Case, one: Compared) -> bool:
    """RAM shows a range of the mapped file, whatever of it is used."""
    if case.parsed.program == _CONTEXT_OF_ITS_OWN and one.what != "weights":
        return False
    return not (one.what == "weights" and one.device == CPU and case.run.mmap_off is None)


def _subject(case: Case) -> Subject:
    cards = [device.name for device in case.devices]
    return Subject(
        engine=case.engine, architecture=case.model.architecture, era=case.parsed.build.era, backend=backend_of(cards)
    )


def backend_of(devices: Iterable[str]) -> str:
    """Return the back end by the names of an engine's devices (CUDA0, Vulkan1): CPU where no card is among them."""
    return next((name.rstrip("0123456789") for name in devices if name != CPU), CPU)


def that_concern(
    reported: Iterable[Reported], build: Build, architecture: str, devices: Sequence[str]
) -> Iterator[Reported]:  # fmt: skip
    """Yield the differences that concern a build, an architecture and devices, of those that answers speak of."""
    subject = Subject(engine=build.engine, architecture=architecture, era=build.era, backend=backend_of(devices))
    yield from (one for one in reported if one.subject == subject and one.is_borne_out)


def warning_text(one: Reported) -> str:
    """Return what an answer says of a difference: what, by how much, on how many rigs, and what that means."""
    of, when = one.subject, f"since {one.subject.era}"
    if of.era.endswith("+"):
        when = f"after {of.era[:-1]}, which are not known here"
    what = f"{of.engine} builds {when}, {of.architecture}"
    against = f" ({one.agreeing} agree)" if one.agreeing else ""
    if one.part == "graph_splits":
        how = f"cut the graph into {_span(one, 0)} {_MORE[one.way]} parts than computed{against}"
        return f"{what}: {one.rigs} rigs {how}: speed and memory may be off"
    where = "RAM" if one.place == CPU else f"a card ({of.backend})"
    return (
        f"{what}: on {one.rigs} rigs {_NAMES[one.part]} of {where} is {_span(one, 1)} MiB {_THAN[one.way]} computed"
        f"{against}: memory may be off by that"
    )


_MORE: dict[Way, str] = {"above": "more", "below": "fewer"}
_THAN: dict[Way, str] = {"above": "larger than", "below": "smaller than"}


def _span(one: Reported, digits: int) -> str:
    low, high = sorted((abs(one.low), abs(one.high)))
    least, most = (f"{value:,.{digits}f}" for value in (low, high))
    return least if least == most else f"{least} to {most}"


def reported_findings(
    reported: Iterable[Reported], build: Build, architecture: str, devices: Sequence[str]
) -> Iterator[Finding]:
    """Yield a finding for each difference that others' logs have shown of such a command."""
    for one in that_concern(reported, build, architecture, devices):
        yield Finding(
            rule="logs-differ",
            severity="warning",
            message=warning_text(one),
            fix=None,
            source="logs sent to this service, against the memory model (`/accuracy`)",
        )
