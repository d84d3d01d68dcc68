"""How advices wait for a worker: the estimated cost of each, who pays for it, and the Redis jobs that call workers.

The database decides which advice is next (service/store/advice/queue.py); a job in Redis only calls a worker. A worker
that ends an advice calls for the next one, and a sweep calls for all open ones in case Redis lost jobs.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from ipaddress import IPv6Network, ip_network

import msgspec
from redis.exceptions import RedisError

from service import metrics
from service.engine.effort import Effort, estimated_seconds
from service.errors import QueueUnavailable, ServiceUnavailable, TooExpensive, TooManyOpen
from service.flows.advice.repos import latest_listing
from service.flows.advice.requests import Request, parse_request
from service.flows.context import Context
from service.queue.enqueue import enqueue_call, ensure_enqueued, n_workers
from service.store.advice import queue
from service.store.advice.advices import StoredAdvice
from service.store.advice.queue import Added

MAX_UNFINISHED = 1000  # advices waiting at a time, of all clients together
_USUAL_VARIANTS = 12  # assumed of a repo that was not read yet
_ASK_AGAIN_SECONDS = 10
_READERS = "readers of old advices"
_LOOKED_AT = 8  # waiting advices that are tried, to find one that no job calls for


def priced(context: Context, request: Request, payer: Payer) -> tuple[float, float]:
    """Return the estimated CPU seconds of a request, and its budget. Raises TooExpensive if the first is larger."""
    settings, cost = context.settings, estimated_seconds(_effort(context, request))
    budget = settings.account_advice_cpu_seconds if payer.account else settings.advice_cpu_seconds
    if cost > budget:
        metrics.ADVICE_REFUSED.of("estimate").inc()
        raise TooExpensive(f"this would take about {cost:,.0f} CPU seconds, {_may_take(context, budget)}")
    return cost, budget


def too_expensive(context: Context, row: StoredAdvice) -> TooExpensive:
    """Return the error for an advice that was stopped at its budget."""
    budget = row.budget or context.settings.advice_cpu_seconds
    return TooExpensive(f"this was ended after {budget:,.0f} CPU seconds, {_may_take(context, budget)}")


def add(context: Context, row: StoredAdvice) -> bool:
    """Commit a new row and call a worker; return False if the same request is in flight.

    Raises TooManyOpen, or ServiceUnavailable when the whole queue is full.
    """
    most = context.settings.open_advices
    added = queue.add(context.engine, row, most, MAX_UNFINISHED)
    if added is Added.CLIENT_FULL:
        metrics.ADVICE_REFUSED.of("client").inc()
        raise TooManyOpen(
            f"{most} of your requests are not computed yet: ask again when one of them is ready",
            retry_after=_ASK_AGAIN_SECONDS,
        )
    if added is Added.ALL_FULL:
        metrics.ADVICE_REFUSED.of("all").inc()
        raise ServiceUnavailable(f"{MAX_UNFINISHED} requests are already waiting: ask again in a few minutes")
    if added is Added.QUEUED:
        with suppress(QueueUnavailable):  # it has been logged, and the sweep will call once Redis answers
            enqueue_call(context.redis, row.id)
    return added is Added.QUEUED


def start(context: Context, job: str) -> StoredAdvice | None:
    """Return the next advice for a worker, as `queue.start`; long ones never take the last worker."""
    try:
        workers = n_workers(context.redis)
    except (RedisError, OSError):
        workers = 1
    return queue.start(context.engine, job, context.clock(), max(1, workers - 1))


def begin_again(context: Context, row: StoredAdvice) -> None:
    """Queue an advice whose body was dropped; all readers of dropped advices share one payer."""
    cost = estimated_seconds(_effort(context, parse_request(row.request)))
    budget = context.settings.advice_cpu_seconds
    if queue.begin_again(context.engine, row.id, _READERS, cost, budget, context.clock()):
        with suppress(QueueUnavailable):
            enqueue_call(context.redis, row.id)


def call_next(context: Context, job: str) -> None:
    """Call a worker for an advice that waits uncalled, at the end of a job: a long one may have had to wait for it."""
    with suppress(QueueUnavailable):
        for name in queue.calls(context.engine, _LOOKED_AT):
            # This job's own name is taken until it has ended.
            if enqueue_call(context.redis, queue.another(name) if name == job else name):
                return


def requeue_unfinished(context: Context) -> int:
    """Call a worker for every open advice without a living job; return how many there were.

    Raises QueueUnavailable. Run at start and by the sweeper, since Redis may be wiped at any moment.
    """
    queue.forget_settled(context.engine)
    now, beat = context.clock(), context.settings.heartbeat_seconds
    return sum(ensure_enqueued(context.redis, job, now, beat) for job in queue.calls(context.engine))


def _effort(context: Context, request: Request) -> Effort:
    constraints = request.canonical.constraints
    return Effort(
        variants=_n_variants(context, request),
        cards=sum(gpu.count for gpu in request.hardware.gpus),
        kinds=len({gpu.name for gpu in request.hardware.gpus}),
        engines=len(constraints.engine_names),
        what_if=len(request.canonical.what_if),
    )


def _n_variants(context: Context, request: Request) -> int:
    """Return how many variants will be compared: those named, else the repo's, else the usual number."""
    named = request.canonical.constraints.variants
    if request.reference.variant or request.reference.file:
        return 1
    if named:
        return len(named)
    listing = latest_listing(context, request.repo)
    return len(listing.variants) if listing else _USUAL_VARIANTS


def _may_take(context: Context, budget: float) -> str:
    more = context.settings.account_advice_cpu_seconds
    with_account = f" ({more:,.0f} with an account)" if more > budget else ""
    return (
        f"and one question may take {math.floor(budget):,}{with_account}: name fewer variants, one engine, fewer cards "
        "or fewer what_if questions"
    )


_IPV6_CUSTOMER = 56  # bits: the prefix that providers give a household (RIPE-690); a server has a /64 in it
_IPV6_SITE = 48  # bits: the prefix that a tunnel broker gives to anybody
_SHARES_OF_SITE = 8  # of the 256 customer prefixes in a site
_SHARES_OF_ACCOUNTS = 3  # of all accounts in one network, besides the share of its clients without an account
UNKNOWN = "net:unknown"


class Payer(msgspec.Struct, frozen=True):
    """Whose share of the workers a request uses, and whether an account asks, which has a larger budget."""

    name: str
    account: bool = False


NOBODY_KNOWN = Payer(UNKNOWN)


def network_payer(client: str) -> Payer:
    """Return who pays for a client without an account. `client`: an IPv4 address, an IPv6 prefix or address."""
    return Payer(f"net:{_network(client)}")


def account_payer(account_id: str, client: str, *, trusted: bool) -> Payer:
    """Return who pays for an account: itself if an operator trusts it, else one of the few shares of its network."""
    if trusted:
        return Payer(f"account:{account_id}", account=True)
    return Payer(f"accounts:{_network(client)}#{_one_of(_SHARES_OF_ACCOUNTS, account_id)}", account=True)


def place_payer(place: str) -> Payer:
    """Return who pays for a question in chat: the guild or workspace, or in direct messages the person."""
    return Payer(f"place:{place}")


def _network(client: str) -> str:
    try:
        network = ip_network(client, strict=False)
    except ValueError:
        return "unknown"
    if not isinstance(network, IPv6Network):
        return str(network.network_address)
    if network.prefixlen < _IPV6_CUSTOMER:
        return str(network)
    customer, site = network.supernet(new_prefix=_IPV6_CUSTOMER), network.supernet(new_prefix=_IPV6_SITE)
    return f"{site}#{_one_of(_SHARES_OF_SITE, str(customer))}"


def _one_of(n: int, member: str) -> int:
    return int.from_bytes(hashlib.sha256(member.encode()).digest()[:4]) % n
