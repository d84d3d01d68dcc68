"""What a worker can be told to do, and nothing else. Arguments are names; everything else stands in the database."""

from __future__ import annotations

import os

from service.flows.advice import advise, fair_queue
from service.flows.advice.cpu_limit import cpu_limit
from service.flows.context import open_context
from service.settings import load_settings


def compute_advice(job: str) -> None:
    """Compute the advice that is next and store it, and call for the one after it. May be run again at any time."""
    with open_context(load_settings(os.environ)) as context:
        advise.compute_advice(context, job, limit=cpu_limit)
        fair_queue.call_next(context, job)
