"""The service's errors beyond the engine's own.

service/wire/problems.json says when each happens, by its `problem`. Nothing here knows about HTTP.
"""

from __future__ import annotations

from typing import Any

from service.engine.errors import AdvisorError


class InvalidSetting(AdvisorError):
    problem = "invalid-setting"


class ServiceUnavailable(AdvisorError):
    problem = "service-unavailable"


class QueueUnavailable(ServiceUnavailable):
    problem = "queue-unavailable"


class DatabaseUnavailable(ServiceUnavailable):
    problem = "database-unavailable"


class StateInUse(AdvisorError):
    problem = "state-in-use"


class AdviceNotFound(AdvisorError):
    problem = "advice-not-found"


class WrongKey(AdvisorError):
    problem = "wrong-key"


class RateLimited(AdvisorError):
    problem = "rate-limited"

    def __init__(self, detail: str, *, retry_after: int, field: str | None = None) -> None:
        super().__init__(detail, field=field)
        self.retry_after = retry_after


class TooManyOpen(RateLimited):
    problem = "too-many-open-advices"


class TooExpensive(AdvisorError):
    problem = "advice-too-expensive"


class NotAuthenticated(AdvisorError):
    problem = "not-authenticated"


class NotAllowed(AdvisorError):
    problem = "not-allowed"


class EnrolmentCodeUnknown(AdvisorError):
    problem = "enrolment-code-unknown"


class HostNotFound(AdvisorError):
    problem = "host-not-found"


class HostNotActive(AdvisorError):
    problem = "host-not-active"


class RunNotFound(AdvisorError):
    problem = "run-not-found"


class LeaseLost(AdvisorError):
    problem = "lease-lost"


class HostExists(AdvisorError):
    problem = "host-exists"


class TooManyHosts(AdvisorError):
    problem = "too-many-hosts"


class CounterTooSmall(AdvisorError):
    problem = "counter-too-small"


class ValidationNotFound(AdvisorError):
    problem = "validation-not-found"


class CalibrationRefused(AdvisorError):
    problem = "calibration-refused"


class ResultNotFound(AdvisorError):
    problem = "result-not-found"


class DumpNotFound(AdvisorError):
    problem = "dump-not-found"


class NotOnBoard(AdvisorError):
    problem = "not-on-board"


class NoHost(AdvisorError):
    problem = "no-host"


class TooManyValidations(AdvisorError):
    problem = "too-many-validations"


class IdempotencyKeyReused(AdvisorError):
    problem = "idempotency-key-reused"


class AdviceFailed(AdvisorError):
    problem = "advice-failed"


def describe(error: AdvisorError) -> dict[str, Any]:
    """Return the parts of a problem that come from the error: type, detail, and any field, choices and retry_after.

    `service.wire.problem` adds the title and HTTP status of the type when the parts are read again.
    """
    parts: dict[str, Any] = {
        "type": error.problem,
        "detail": error.detail,
        "field": error.field,
        "choices": list(error.choices),
        "retry_after": getattr(error, "retry_after", None),
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}
