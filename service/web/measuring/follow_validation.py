"""Following a validation until it is done: what is new of each run, as server-sent events."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Iterator

import msgspec
from anyio import to_thread

from service.flows.accounts import Caller
from service.flows.measuring import validated
from service.queue.progress import validation_channel
from service.web.http.follow import looks, sse, stream
from service.web.http.limits import Lease
from service.web.services import Services
from service.wire.measuring.runs import Run, Validation, ValidationEvent

FINAL = ("done", "cancelled")


def events(services: Services, validation_id: str, lease: Lease, caller: Caller | None = None) -> AsyncGenerator[bytes]:
    """Return server-sent events: the state at once, then each run that changed with its new rows, and comments.

    An event of a run is named after its state, one of the whole after the validation's; the last one is final.
    """
    look = looks(
        lambda _: to_thread.run_sync(
            validated.read_validation, services.context, validation_id, caller, limiter=services.looking
        ),
        services.listener.listen(validation_channel(validation_id)),
        lambda validation: validation.state in FINAL,
        services.drain,
    )
    return stream(look, _News().of, lease, services.drain)


def final_id(validation: Validation) -> str:
    """Return the id of the last event of a validation that is over."""
    return validation.state


class _News:
    """What a client was not told yet."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._state = ""

    def of(self, validation: Validation) -> Iterator[bytes]:
        """Yield events for what changed since the last look."""
        if not self._state:
            yield self._whole(validation)
        for run in validation.runs:
            yield from self._of_run(validation, run)
        if validation.state != self._state:
            yield self._whole(validation)

    def _whole(self, validation: Validation) -> bytes:
        self._state = validation.state
        event = ValidationEvent(validation.id, None, validation.state)
        return sse(event.state, final_id(validation), event)

    def _of_run(self, validation: Validation, run: Run) -> Iterator[bytes]:
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        if before == run or (before is None and run.state == "queued"):
            return
        known = before.rows if before and run.rows[: len(before.rows)] == before.rows else []
        event = ValidationEvent(validation.id, run.id, run.state, run.progress, run.rows[len(known) :])
        yield sse(event.state, f"{run.state}-{zlib.crc32(msgspec.json.encode(event)):08x}", event)
