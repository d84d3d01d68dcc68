"""Tuning by measuring: from one config to the best of those around it, with as little time on a host as possible."""

from service.engine.tune.halving import Next, Trial, Tried, next_trials
from service.engine.tune.steps import Step, steps_around

__all__ = ["Next", "Step", "Trial", "Tried", "next_trials", "steps_around"]
