"""What an engine's benchmark program printed, as data: rows of raw times, or why there are none."""

from service.engine.measured.classify import Failure, FailureKind, classify, in_plain_words
from service.engine.measured.identity import ModelIdentity, RigIdentity, model_identity, rig_identity
from service.engine.measured.reader import Reader
from service.engine.measured.roofline import Prediction, bounding_rig, most_pp, most_tg, require_possible
from service.engine.measured.rows import MeasuredRow, merged
from service.engine.measured.summary import (
    MeasuredMemory,
    agreed,
    goal_point,
    measured_seconds,
    measured_speed,
    memory_of,
    speed_at,
    spread,
)

__all__ = [
    "Failure",
    "FailureKind",
    "MeasuredMemory",
    "MeasuredRow",
    "ModelIdentity",
    "Prediction",
    "Reader",
    "RigIdentity",
    "agreed",
    "bounding_rig",
    "classify",
    "goal_point",
    "in_plain_words",
    "measured_seconds",
    "measured_speed",
    "memory_of",
    "merged",
    "model_identity",
    "most_pp",
    "most_tg",
    "require_possible",
    "rig_identity",
    "speed_at",
    "spread",
]
