"""Runs one scheduled job in a process of its own: `python -m workers.job NAME`, started by the API's scheduler."""

from __future__ import annotations

import os
import signal
import sys

from service import logs
from service.flows.context import open_context
from service.flows.operations.schedule import log_done, schedule
from service.queue.processes import die_with_parent
from service.settings import Settings, load_settings


def main(settings: Settings, name: str) -> int:
    """Run a job and return its exit code. Raises KeyError if these settings have no job of that name."""
    job = {job.name: job for job in schedule(settings)}[name]
    with open_context(settings) as context:
        log_done(job, job.call(context))
    return 0


if __name__ == "__main__":
    die_with_parent(os.getppid())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    settings = load_settings(os.environ)
    logs.configure("worker", settings.log_level)
    sys.exit(main(settings, sys.argv[1]))
