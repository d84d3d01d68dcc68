"""What an advice says of a config before anybody measures it, and the fastest that its machine could be at all."""

from __future__ import annotations

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.versions import versions


def _shipped() -> str:
    return versions().calibration


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and speed as predicted. `most_tg`, `most_pp`: tokens a second that no machine of this kind can exceed.

    `calibration`: by which one (as in Versions; the shipped one where it is not said). `own_rig`: for
    the very machine that measured; else for one with the same cards, of which memory is the same, speed is not.
    """

    devices: list[DeviceMemory]
    speed: list[SpeedPoint]
    most_tg: float
    most_pp: float
    calibration: str = msgspec.field(default_factory=_shipped)
    own_rig: bool = True
