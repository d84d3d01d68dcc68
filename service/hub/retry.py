"""Asking again: how long to wait, and when to give up."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar

from service import metrics
from service.hub.errors import HubRateLimited, HubUnavailable
from service.hub.listing import Limits
from service.logs import Log

T = TypeVar("T")
log = Log("hub")
_DEFAULT_WAIT = {429: 30, 503: 30}
_RESET = re.compile(r"(?:^|[;,\s])t=([0-9]{1,6})(?:$|[;,\s])", re.ASCII)
_LEFT = re.compile(r'"([a-z]{1,20})"\s*;\s*r=([0-9]{1,7})', re.ASCII)
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
    """Return the seconds that `Retry-After` asks for, or the `t=` of the Hub's `RateLimit` header; at most an hour."""
    stated = headers.get("retry-after", "").strip()
    if stated.isascii() and stated.isdigit():
        return min(int(stated[:9]), _MAX_ASKED)
    reset = _RESET.search(headers.get("ratelimit", "")[:200])
    return min(int(reset[1]), _MAX_ASKED) if reset else None


def with_retries(attempt: Callable[[], T], limits: Limits, sleep: Callable[[float], None]) -> T:
    """Return what `attempt` returns, asking again after a Transient, up to `limits.attempts` times.

    A wait that the Hub asks for is kept if it is at most `limits.longest_wait`. Raises HubRateLimited or HubUnavailable
    with the seconds after which asking again makes sense.
    """
    for number in count(1):
        try:
            return attempt()
        except Transient as failure:
            pause = failure.retry_after if failure.retry_after is not None else _pause(number)
            if number >= limits.attempts or pause > limits.longest_wait:
                log.warning("hub.refused", status=failure.status, pause_seconds=round(pause, 1), attempt=number)
                raise _final(failure) from failure
            metrics.HUB_RETRIES.only.inc()
            log.debug("hub.asked_again", status=failure.status, pause_seconds=round(pause, 1), attempt=number)
            sleep(pause)
    raise AssertionError  # count() has no end


def count_reply(kind: str, status: int | None, headers: Mapping[str, str]) -> None:
    """Count a reply of the Hub (`status` None: there was none), and note what it says of its limits.

    Its header is `RateLimit: "api";r=489;t=192`: the window's name, requests left, seconds until it begins anew.
    """
    metrics.HUB_REQUESTS.of(kind, metrics.status_class(status)).inc()
    if status == 429:
        metrics.HUB_LIMITED.only.inc()
    failed = status is None or status == 429 or status >= 500
    (metrics.HUB_FAILED if failed else metrics.HUB_ANSWERED).only.set(time.time())
    for window, left in _LEFT.findall(headers.get("ratelimit", "")[:200]):
        metrics.HUB_LEFT.of(window).set(int(left))


def _pause(number: int) -> float:
    return _FIRST_PAUSE * 4.0 ** (number - 1) * (1 + random.random())  # noqa: S311 (spreads clients, guards nothing)


def _final(failure: Transient) -> HubRateLimited | HubUnavailable:
    wait = failure.retry_after or _DEFAULT_WAIT.get(failure.status or 0, 10)
    if failure.status == 429:
        return HubRateLimited(f"the Hub asks to wait {wait} seconds: {failure.what}", retry_after=wait)
    return HubUnavailable(f"the Hub cannot be read at the moment: {failure.what}", retry_after=wait)
