"""Speed: PP and TG of a config at any depth, with intervals, and where the time goes."""

from service.engine.speed.parts import PARTS, milliseconds
from service.engine.speed.predict import (
    Speed,
    TimedRequest,
    goal_seconds,
    is_called,
    predict_speed,
    request_of,
    speed_point,
    typical_seconds,
    versus,
)
from service.engine.speed.sums import weights_of, work_of
from service.engine.speed.work import Work

__all__ = [
    "PARTS",
    "Speed",
    "TimedRequest",
    "Work",
    "goal_seconds",
    "is_called",
    "milliseconds",
    "predict_speed",
    "request_of",
    "speed_point",
    "typical_seconds",
    "versus",
    "weights_of",
    "work_of",
]
