"""What the service refuses beyond the engine's own errors, as one tree.

AdvisorError (service/engine/errors.py)
├── InvalidSetting          an environment variable that cannot be; `field` is its name
├── ServiceUnavailable      something that the service needs does not answer; asking again later may help
│   ├── QueueUnavailable    no Redis answers, or none can be started
│   └── DatabaseUnavailable no database answers
├── StateInUse              another `advisor serve` uses the same state folder
├── AdviceNotFound          no advice has this id, or it was deleted
├── WrongKey                the key given does not belong to the advice
├── RateLimited             the client asked too often; `retry_after` in seconds
├── TooManyOpen             who asks has as many open advices as one may; `retry_after` in seconds
├── TooExpensive            an advice would take, or took, more CPU seconds than one may
├── NotAuthenticated        no good token or signature came with a request that takes one
├── NotAllowed              the token is good, but not for this
├── EnrolmentCodeUnknown    a code is wrong, was used, or its ten minutes are over
├── HostNotFound            no host has this id, or it is not for this caller to see
├── HostNotActive           a host waits for its owner, pauses, or is revoked
├── RunNotFound             no run has this id, or it is not this host's
├── LeaseLost               the run is another lease's now: stop, and throw away what was measured
├── HostExists              a host with this key is enrolled already
├── TooManyHosts            the account has as many hosts, and codes for more, as one may
├── CounterTooSmall         a signed call that came before, or out of order; `choices`: the last one's counter
├── ValidationNotFound      no validation has this id
├── CalibrationRefused      too few results to fit, or predictions would be worse by what they say
├── ResultNotFound          no result has this id, or it is hidden or deleted
├── DumpNotFound            no dump has this name
├── NotOnBoard              nothing that is shown is of this model, rig or person
├── NoHost                  no host can measure what is asked: says what is missing where
├── TooManyValidations      an account's validations on hosts of others are as many, or took as long, as they may
├── IdempotencyKeyReused    the key was sent before, with another request
└── AdviceFailed            an advice could not be computed, for a reason that is not the user's

`problem` is the heading in docs/problems.md; nothing here knows HTTP.
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
    """Return the parts of a problem that are `error`'s own: type and detail; field, choices, retry_after if it has any.

    What its type means, and its HTTP status, is `service.wire.problem`'s to say when the parts are read again.
    """
    parts: dict[str, Any] = {
        "type": error.problem,
        "detail": error.detail,
        "field": error.field,
        "choices": list(error.choices),
        "retry_after": getattr(error, "retry_after", None),
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}
