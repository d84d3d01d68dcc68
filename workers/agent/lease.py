"""A leased run, ours as long as we renew it: three times per lease, whenever there are new rows, until told to stop."""

from __future__ import annotations

import random
import threading
import time
from typing import Literal, TypeAlias

import msgspec

from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.wire.measuring.agent import Accepted, LeasedRun, Progress, Report
from workers.agent.client import Client
from workers.agent.errors import ServiceError, ServiceUnreachable

Step: TypeAlias = Literal["checking", "downloading", "loading", "measuring"]
_ROWS_SECONDS = 2.0  # rows that arrive within this time are sent together
_LONGEST_SECONDS = 600.0
_MAX_ROWS = 200  # of one progress: service/wire/measuring/agent.py
_REPORT_SECONDS = 390  # how long to retry a report: a run whose lease ended is often not given to another host yet
_REPORT_SECONDS_AT_END = 20


class LeaseLost(Exception):
    """This host has lost the run."""


class Lease:
    """One leased run. Everything sent about it goes through here."""

    def __init__(self, client: Client, leased: LeasedRun, ending: threading.Event) -> None:
        """`ending`: set when the agent is to end."""
        self.client, self.leased, self.ending = client, leased, ending
        self._step: Step = "checking"
        self._rows: list[MeasuredRow] = []
        self._lock = threading.Lock()
        self._wake, self._done = threading.Event(), threading.Event()
        self._renewed, self._seconds = time.monotonic(), min(max(leased.lease_seconds, 1.0), _LONGEST_SECONDS)
        self._why: str | None = None
        self._lost = False
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def begin(self) -> None:
        """Renew for the first time, before anything is started. Raises LeaseLost."""
        try:
            self._renew()
        except ServiceError as error:
            raise LeaseLost(error.detail) from None
        if self._why:
            raise LeaseLost(self._why)
        self._thread.start()

    def step(self, step: Step) -> None:
        """Report what is being done now."""
        with self._lock:
            self._step = step
        self._wake.set()

    def add_row(self, row: MeasuredRow) -> None:
        """Queue a row to be sent soon."""
        with self._lock:
            self._rows.append(row)
            self._step = "measuring"
        self._wake.set()

    def why_stop(self) -> str | None:
        """Return why the run must end, None while it may continue."""
        return self._why

    def end(self, report: Report) -> Accepted | None:
        """Stop renewing and send the report; None if the run is no longer ours, or the service does not answer."""
        self._done.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        until, failures = time.monotonic() + _REPORT_SECONDS, 0
        while not self._lost:
            try:
                return self.client.report(self.leased.run, report)
            except ServiceUnreachable:
                if self.ending.is_set():
                    until = min(until, time.monotonic() + _REPORT_SECONDS_AT_END)
                failures += 1
                pause = pause_after(failures)
                if time.monotonic() + pause > until:
                    return None
                self._pause(pause)
            except ServiceError as error:
                if error.status != 422 or not report.rows:
                    return None
                why = f"the figures were refused: {error.detail}"[:500]
                failure = Failure(kind="no_output", transient=False, text=why)
                report = msgspec.structs.replace(report, rows=(), failure=failure)
        return None

    def _pause(self, seconds: float) -> None:
        if not self.ending.wait(seconds):
            return
        time.sleep(1)

    def _keep(self) -> None:
        """Renew until done, in a thread of its own."""
        while not self._done.is_set() and not self._why:
            self._wake.wait(self._seconds / 3)
            self._wake.clear()
            if self._done.is_set():
                return
            try:
                self._renew()
            except ServiceUnreachable as error:
                if time.monotonic() > self._renewed + self._seconds:
                    self._give_up(f"the lease ran out: {error.detail}")
                self._done.wait(min(5, self._seconds / 20))
                self._wake.set()
            except Exception as error:  # whatever it is, a run must not continue without its lease
                self._give_up(str(error) or type(error).__name__)
            self._done.wait(min(_ROWS_SECONDS, self._seconds / 10))

    def _give_up(self, why: str) -> None:
        self._lost, self._why = True, why

    def _renew(self) -> None:
        with self._lock:
            rows, step = tuple(self._rows[:_MAX_ROWS]), self._step
        progress = Progress(fence=self.leased.fence, step=step, rows=rows)
        renewed = self.client.progress(self.leased.run, progress)
        with self._lock:
            del self._rows[: len(rows)]
            if self._rows:
                self._wake.set()
        self._renewed = time.monotonic()
        if renewed.stop:
            self._why = (renewed.why or "the service stopped the run")[:200]


_FIRST_SECONDS, _LONGEST_PAUSE = 1.0, 20.0


def pause_after(n_failures: int) -> float:
    """Return the seconds to pause after so many failures in a row: about 1, doubling each time, at most 20.

    They are drawn from half to one and a half times that, so that hosts do not all come back at once.
    """
    middle = min(_FIRST_SECONDS * 2.0 ** min(max(n_failures - 1, 0), 10), _LONGEST_PAUSE)
    return middle * random.uniform(0.5, 1.5)  # noqa: S311 - spreads hosts, guards nothing
