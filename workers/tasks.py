"""What a worker can be told to do, and nothing else. Arguments are ids; everything else stands in the database."""

from __future__ import annotations

import os

from service.flows import advise
from service.flows.context import open_context
from service.settings import load_settings


def compute_advice(advice_id: str) -> None:
    """Compute an advice and store it. May be run again at any time."""
    with open_context(load_settings(os.environ)) as context:
        advise.compute_advice(context, advice_id)
