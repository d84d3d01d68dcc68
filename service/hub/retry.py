"""Retries of requests to the Hub: how long to wait, and when to give up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from itertools import count as numbers
from typing import TYPE_CHECKING, TypeVar

from service.counting import count, count_answer
from service.hub.errors import HubRateLimited, HubUnavailable
from service.hub.listing import ListingLimits
from service.logs import Log

if TYPE_CHECKING:
    from huggingface_hub.utils._http import RateLimitInfo

T = TypeVar("T")
log = Log("hub")
_DEFAULT_WAIT = {429: 30, 503: 30}
_MAX_ASKED = 3_600
_FIRST_PAUSE = 0.25


class Transient(Exception):
    """A failure that may pass. `status` is the HTTP status (None: no answer), `retry_after` what the Hub asked for."""

    def __init__(self, what: str, status: int | None = None, retry_after: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.status = status
        self.retry_after = retry_after


def seconds_asked(headers: Mapping[str, str]) -> int | None:
    """Return the seconds that `Retry-After` (a number or a date) asks for, else those of the Hub's `RateLimit` header
    if nothing is left; at most an hour."""
    stated = headers.get("retry-after", "").strip()
    if stated.isascii() and stated.isdigit():
        return min(int(stated[:9]), _MAX_ASKED)
    with suppress(ValueError, TypeError):
        return min(max(int(parsedate_to_datetime(stated).timestamp() - time.time()), 0), _MAX_ASKED)
    limit = _limit_of(headers)
    return min(limit.reset_in_seconds, _MAX_ASKED) if limit and limit.remaining == 0 else None


def _limit_of(headers: Mapping[str, str]) -> RateLimitInfo | None:
    """Return the Hub's statement of its limits, parsed by its own library: `RateLimit: "api";r=489;t=192`."""
    stated = headers.get("ratelimit", "")
    if not stated or len(stated) > 200:
        return None
    from huggingface_hub.utils._http import parse_ratelimit_headers  # takes a tenth of a second to import

    return parse_ratelimit_headers({"ratelimit": stated})


def with_retries(attempt: Callable[[], T], limits: ListingLimits, sleep: Callable[[float], None]) -> T:
    """Return what `attempt` returns, retrying after a Transient, up to `limits.attempts` attempts.

    A wait that the Hub asks for is kept if it is at most `limits.longest_wait`. Raises HubRateLimited or HubUnavailable
    with the seconds after which asking again makes sense.
    """
    for number in numbers(1):
        try:
            return attempt()
        except Transient as failure:
            pause = failure.retry_after if failure.retry_after is not None else _pause(number)
            if number >= limits.attempts or pause > limits.longest_wait:
                log.warning("hub.refused", status=failure.status, pause_seconds=round(pause, 1), attempt=number)
                raise _final(failure) from failure
            count("retried")
            log.debug("hub.asked_again", status=failure.status, pause_seconds=round(pause, 1), attempt=number)
            sleep(pause)
    raise AssertionError  # numbers() has no end


def count_reply(kind: str, status: int | None, headers: Mapping[str, str]) -> None:
    """Count a reply of the Hub (`status` None: there was none), and its statement of limits."""
    limit = _limit_of(headers)
    count_answer(kind, status, {limit.resource_type: limit.remaining} if limit else {})


def _pause(number: int) -> float:
    return _FIRST_PAUSE * 4.0 ** (number - 1) * (1 + random.random())  # noqa: S311 (spreads clients, guards nothing)


def _final(failure: Transient) -> HubRateLimited | HubUnavailable:
    wait = failure.retry_after or _DEFAULT_WAIT.get(failure.status or 0, 10)
    if failure.status == 429:
        return HubRateLimited(f"the Hub asks to wait {wait} seconds: {failure.what}", retry_after=wait)
    return HubUnavailable(f"the Hub cannot be read at the moment: {failure.what}", retry_after=wait)
