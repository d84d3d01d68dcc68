"""What a run is judged by: bound, cards and machine, agreed when it was planned and fixed when it is leased."""

from __future__ import annotations

from datetime import datetime

import msgspec

from service.engine.hardware import Hardware
from service.engine.measured.same_machine import MatchKind


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """On what terms a host may take a run: the machine that it said it was when the run was planned.

    `most_tg`, `most_pp`: tokens a second that the cards of the run cannot exceed, with the CPU; `max_minutes`: how long
    its owner lets a run take.
    """

    hardware: Hardware
    most_tg: float
    most_pp: float
    max_minutes: int


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a leased run is bounded, filed and booked by, whatever its host says of itself afterwards.

    `gpus`: indices of its cards in the host's own list; `owner_id`: the account of the host.
    """

    host_id: str
    owner_id: str
    hardware_key: str
    terms: Terms
    match: MatchKind
    gpus: tuple[int, ...]
    leased_at: datetime
