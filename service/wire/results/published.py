"""Lines of `service/data/`: results that somebody published elsewhere, as stated there, and predictions of them."""

from __future__ import annotations

import msgspec

from service.engine.config import Engine
from service.engine.hardware import Hardware
from service.engine.measured import MeasuredRow, ModelIdentity, Prediction
from service.wire.results.results import Published


class PublishedResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published result. `command` is text, often a fragment: it is shown and never read as a config.

    `model`: its name as published, its shape as the model's published config has it. `remarks`: what the author did not
    state and is taken from elsewhere.
    """

    id: str
    published: Published
    engine: Engine
    build: str | None
    variant: str
    model: ModelIdentity
    hardware: Hardware
    rows: tuple[MeasuredRow, ...]
    command: str | None
    remarks: str | None


class PredictedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of a published result by parameters that saw neither its author nor its machine."""

    id: str
    prediction: Prediction
