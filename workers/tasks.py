"""The only tasks a worker runs. Their arguments are names; everything else is in the database."""

from __future__ import annotations

import os

from service.flows.advice import advise, fair_queue
from service.flows.advice.cpu_limit import cpu_limit
from service.flows.context import open_context
from service.settings import load_settings


def compute_advice(job: str) -> None:
    """Compute and store the next advice, and enqueue the one after it. Safe to run again at any time."""
    with open_context(load_settings(os.environ)) as context:
        advise.compute_advice(context, job, limit=cpu_limit)
        fair_queue.call_next(context, job)
