"""Follows a validation on other machines until it is done, and shows the outcome."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from service.cli.output import confirmed
from service.cli.progress import Progress
from service.cli.remote import PAUSE_SECONDS, Service, ServiceRefused, Unreachable
from service.engine.measured.rows import MeasuredRow
from service.wire.advice.advice import Advice
from service.wire.advice.config_text import measured_short
from service.wire.measuring.runs import FINAL, FINAL_RUN, Run, Validation, ValidationEvent
from service.wire.measuring.validation_text import failure_text, row_text
from service.wire.plain_text import clean

_ATTEMPTS = 5


def follow(service: Service, validation: Validation, progress: Progress) -> Validation:
    """Show a validation's progress, and return it when it is final. Raises ServiceRefused, Unreachable.

    A broken connection is reopened and the state read again, so nothing is missed.
    """
    shown = _Shown(progress)
    shown.all_of(validation)
    for event in _events(service, validation):
        if event is None:
            shown.again()
            continue
        if event.rows and event.state not in FINAL_RUN:
            shown.rows_of(event)
        else:
            shown.all_of(service.get(f"/v1/validations/{validation.id}", Validation))
    return service.get(f"/v1/validations/{validation.id}", Validation)


def ask_to_cancel(service: Service, validation: Validation) -> str:
    """Ask at a terminal whether to cancel the validation; return what was done. By default it goes on."""
    question = "\ncancel the validation? Otherwise it continues without you."
    with contextlib.suppress(KeyboardInterrupt):
        if sys.stderr.isatty() and confirmed(question):
            service.delete(f"/v1/validations/{validation.id}")
            return "cancelled"
    return (
        f"it continues; to follow it again: advisor validate --follow {service.address}/v1/validations/{validation.id}"
    )


def ranking(before: Advice, after: Advice) -> Iterator[str]:
    """Yield the configs in their new order, with their measured speed and their former rank."""
    ranks = {config.id: config.rank for config in before.configs}
    for config in after.configs:
        is_measured = bool(config.measured) and config.measured_match == "exact"
        point = (config.measured if is_measured else config.speed)[-1]
        how = "measured" if is_measured else f"predicted, {point.tg_low:,.1f} to {point.tg_high:,.1f}"
        near = "" if is_measured else measured_short(config)
        old = ranks.get(config.id)
        was = f" (was #{old})" if old is not None and old != config.rank else ""
        speed = f"TG {point.tg_tps:,.1f} t/s at {point.n_kv:,} tokens, {how}{near}"
        yield clean(f"#{config.rank}{was} {config.variant} {config.engine}: {speed}")


class _Shown:
    """Prints each row, and each end of a run, once."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows: set[tuple[str, MeasuredRow]] = set()
        self._ended: set[str] = set()
        self._names: dict[str, str] = {}
        self._share, self._text = 0.0, "waiting"

    def all_of(self, validation: Validation) -> None:
        for run in validation.runs:
            self._names[run.id] = clean(f"{run.variant} {run.engine}")
            self._new_rows(run.id, run.rows)
            if run.state in FINAL_RUN and run.id not in self._ended:
                self._ended.add(run.id)
                self._progress.line(self._end(run))
        self._share = len(self._ended) / max(len(validation.runs), 1)
        self._text = _now(validation)
        self.again()

    def rows_of(self, event: ValidationEvent) -> None:
        self._new_rows(event.run or "", event.rows)
        self._text = clean(f"{self._names.get(event.run or '', 'a run')}: {event.progress or event.state}")
        self.again()

    def again(self) -> None:
        self._progress.show(self._share, self._text)

    def _new_rows(self, run: str, rows: list[MeasuredRow]) -> None:
        for row in rows:
            key = (run, row)
            if key not in self._rows:
                self._rows.add(key)
                self._progress.line(f"{self._names.get(run, 'a run')} {row_text(row)}")

    def _end(self, run: Run) -> str:
        why = f": {failure_text(run.failure)}" if run.failure else ""
        earlier = ", measured earlier" if run.previous else ""
        return clean(f"{self._names[run.id]} {run.state}{earlier}{why}")


def _now(validation: Validation) -> str:
    busy = [run for run in validation.runs if run.state in ("leased", "running")]
    said = [clean(f"{run.variant} {run.engine} on {run.host}: {run.progress or run.state}") for run in busy]
    if said or validation.state in FINAL:
        return "; ".join(said) or validation.state
    again = any(run.state == "queued" and (run.attempt or run.rows) for run in validation.runs)
    return "waiting for a host" + (" again: one went silent or gave way before the end" if again else "")


def _events(service: Service, validation: Validation) -> Iterator[ValidationEvent | None]:
    """Yield events until the validation is final; a broken stream is reopened, a few times in a row."""
    path, failed = f"/v1/validations/{validation.id}", 0
    while validation.state not in FINAL:
        try:
            for event in service.events(f"{path}/events", ValidationEvent):
                failed = 0
                yield event
        except (Unreachable, ServiceRefused) as error:
            failed += 1
            if failed >= _ATTEMPTS or (isinstance(error, ServiceRefused) and error.status < 429):
                raise
            time.sleep(PAUSE_SECONDS * failed)
        validation = _again(service, path, validation)


def _again(service: Service, path: str, validation: Validation) -> Validation:
    with contextlib.suppress(Unreachable):
        return service.get(path, Validation)
    return validation
