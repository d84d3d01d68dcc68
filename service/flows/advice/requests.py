"""A request, parsed: repo, hardware, goal, constraints; and the keys that tell whether two ask the same."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from service.engine.catalogue import resolve
from service.engine.decoding import require_no_nul
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical
from service.engine.planner.explaining.what_if import check_questions
from service.engine.planner.ranking.current_command import parsed_command
from service.engine.planner.search.options import check_user_flags
from service.engine.reduction import reduced
from service.engine.versions import versions
from service.hub.references import RepoReference, parse_reference
from service.wire.advice.advice import AdviceRequest

_SHORT = 4 << 10  # bytes of a request that is remembered: a paste of a whole log is not


class Request(msgspec.Struct, frozen=True):
    """What was asked: `canonical` is the request with its hardware in canonical form, as it is stored."""

    reference: RepoReference
    hardware: Hardware
    canonical: AdviceRequest

    @property
    def goal(self) -> GoalRequest:
        """The goal, a preset's name made into one."""
        return as_goal(self.canonical.goal)

    @property
    def repo(self) -> str:
        """The Hub's id, `owner/name`."""
        return self.reference.repo


def parse_request(asked: AdviceRequest) -> Request:
    """Return the request, parsed; one that was returned before comes out the same.

    Raises InvalidInput, UnknownHardware or InvalidHardware with the field, before anything is read or queued.
    """
    require_no_nul(asked)
    encoded = msgspec.json.encode(asked)
    return _parsed_before(encoded) if len(encoded) <= _SHORT else _parsed(asked)


@lru_cache(maxsize=256)
def _parsed_before(encoded: bytes) -> Request:
    """The same question is asked by many, and again and again: it is parsed once."""
    return _parsed(msgspec.json.decode(encoded, type=AdviceRequest))


def _parsed(asked: AdviceRequest) -> Request:
    reference = parse_reference(asked.repo, asked.revision)
    hardware = canonical(parse_hardware(asked.hardware) if isinstance(asked.hardware, str) else asked.hardware)
    if hardware.notes:
        hardware = msgspec.structs.replace(hardware, notes=reduced(hardware.notes))
    for engine in asked.constraints.engine_names:
        asked.constraints.build_of(engine)
    check_user_flags(asked.constraints, resolve(hardware))
    parsed_command(asked.constraints)
    check_questions(hardware, asked.what_if)
    known = msgspec.structs.replace(
        asked, hardware=hardware, goal=as_goal(asked.goal), constraints=_reduced(asked.constraints)
    )
    return Request(reference, hardware, known)


def _reduced(constraints: Constraints) -> Constraints:
    """The command in use is kept with the request: without what names a person or a secret."""
    if constraints.current_command is None:
        return constraints
    return msgspec.structs.replace(constraints, current_command=reduced(constraints.current_command))


def as_goal(asked: GoalRequest | Preset) -> GoalRequest:
    """Return the goal that was asked for: a preset's name alone is that preset."""
    return asked if isinstance(asked, GoalRequest) else GoalRequest(preset=asked)


def request_key(request: Request, revision: str | None, calibration: str | None = None) -> str:
    """Return the hash of everything an answer depends on. `revision`: the commit, or None while it is not known.
    `calibration`: the version of the one fitted here, None where there is none.

    The key without a commit is that of requests in flight, the one with it that of finished advice.
    """
    reference = request.reference
    what = {
        "repo": request.repo,
        "asked": None if revision else reference.revision,
        "revision": revision,
        "variant": reference.variant,
        "file": reference.file,
        "hardware": request.hardware,
        "goal": request.canonical.goal,
        "constraints": request.canonical.constraints,
        "what_if": request.canonical.what_if,
        "versions": versions(calibration),
    }
    return hashlib.sha256(msgspec.json.encode(what, order="sorted")).hexdigest()
