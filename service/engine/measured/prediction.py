"""What an advice says of a config before anybody measures it, and the fastest that its machine could be at all."""

from __future__ import annotations

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and speed as predicted. `most_tg`, `most_pp`: tokens a second that no machine of this kind can exceed."""

    devices: list[DeviceMemory]
    speed: list[SpeedPoint]
    most_tg: float
    most_pp: float
