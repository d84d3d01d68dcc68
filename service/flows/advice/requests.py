"""Parses a request (repo, hardware, goal, constraints), and computes the key under which equal requests meet."""

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

_SHORT = 4 << 10  # bytes of a request whose parse is remembered, which a pasted log exceeds


class Request(msgspec.Struct, frozen=True):
    """A parsed request. `canonical` is the request with its hardware in canonical form, as it is stored."""

    reference: RepoReference
    hardware: Hardware
    canonical: AdviceRequest

    @property
    def goal(self) -> GoalRequest:
        """The goal; a preset given by name alone is expanded."""
        return as_goal(self.canonical.goal)

    @property
    def repo(self) -> str:
        """The repo's id on the Hub, `owner/name`."""
        return self.reference.repo


def parse_request(asked: AdviceRequest) -> Request:
    """Return the parsed request; parsing its canonical form again gives the same.

    Raises InvalidInput, UnknownHardware or InvalidHardware with the field, before anything is read or queued.
    """
    require_no_nul(asked)
    encoded = msgspec.json.encode(asked)
    return _parsed_before(encoded) if len(encoded) <= _SHORT else _parsed(asked)


@lru_cache(maxsize=256)
def _parsed_before(encoded: bytes) -> Request:
    """Parse with a cache: many people ask the same, and polling asks it again and again."""
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
    """Return constraints whose command in use has lost whatever identifies a person or is a secret: it is stored."""
    if constraints.current_command is None:
        return constraints
    return msgspec.structs.replace(constraints, current_command=reduced(constraints.current_command))


def as_goal(asked: GoalRequest | Preset) -> GoalRequest:
    """Return the goal asked for; a preset's name alone stands for that preset."""
    return asked if isinstance(asked, GoalRequest) else GoalRequest(preset=asked)


def request_key(request: Request, revision: str | None, calibration: str | None = None) -> str:
    """Return the hash of everything that an answer depends on.

    `revision`: the commit, None while it is unknown. `calibration`: the version of the one fitted here, if any.

    Requests in flight are found by the key without a commit, finished advices by the one with it.
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
