"""The Prometheus metrics. docs/metrics.md is generated from the list here.

`own`: of one API process, read from it. `shared`: counted in whatever process does the work, summed in Redis
(service/queue/counters.py), and so the same in every process that is asked. `asked`: read from the database and Redis
at scrape time, likewise the same everywhere. Every label has a closed list of values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from service import __version__, counting
from service.engine.versions import ENGINE_MODEL

Scope: TypeAlias = Literal["own", "shared", "asked"]
Kind = TypeVar("Kind", Counter, Gauge, Histogram)
REGISTRIES: dict[Scope, CollectorRegistry] = {
    scope: CollectorRegistry(auto_describe=False) for scope in ("own", "shared", "asked")
}
ProcessCollector(registry=REGISTRIES["own"])
PlatformCollector(registry=REGISTRIES["own"])

ROUTES = ("(every route of the service)",)  # stands for all values of `route`: one template per handler
OTHER = "other"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER)
_STATUS = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WORK_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_RATIOS = (0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0)


class Metric(Generic[Kind]):
    """One metric. A label value outside its list counts as `other`."""

    def __init__(
        self, kind: type[Kind], name: str, text: str, scope: Scope,
        buckets: Sequence[float] | None = None, /, **labels: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.name, self.text, self.scope, self.labels = name, text, scope, labels
        self.kind = kind.__name__.lower()
        options: dict[str, Any] = {} if buckets is None else {"buckets": buckets}
        self.made: Kind = kind(name, text, tuple(labels), registry=REGISTRIES[scope], **options)
        self._series: dict[tuple[str, ...], Kind] = {}
        METRICS.append(self)
        # A counter must start at 0 for its growth to be seen; a gauge that was never set must say nothing.
        if labels and ROUTES not in labels.values() and kind is not Gauge:
            for values in product(*labels.values()):
                self.made.labels(*values)

    @property
    def only(self) -> Kind:
        """The only series of a metric without labels."""
        return self.made

    def of(self, *values: str) -> Kind:
        """Return the series with these label values."""
        found = self._series.get(values)
        if found is None:
            pairs = zip(values, self.labels.values(), strict=True)
            known = tuple(value if value in all_ or all_ is ROUTES else OTHER for value, all_ in pairs)
            found = self.made.labels(*known)
            if known == values:  # values that strangers make up are not remembered
                self._series[values] = found
        return found


METRICS: list[Metric[Any]] = []

REQUESTS = Metric(
    Counter, "advisor_http_requests", "Requests answered, by route as a template and by class of status.", "own",
    method=_METHODS, route=ROUTES, status=_STATUS,
)  # fmt: skip
LATENCY = Metric(
    Histogram, "advisor_http_request_duration_seconds",
    "Seconds until an answer begins; requests that wait on purpose (held polls, event streams) are left out. For "
    "`/bots/…` the time to the acknowledgement, for which Discord and Slack allow three seconds.", "own", _SECONDS,
    method=_METHODS, route=ROUTES,
)  # fmt: skip
IN_FLIGHT = Metric(Gauge, "advisor_http_requests_in_flight", "Requests that are not yet fully answered.", "own")
HELD = Metric(
    Gauge, "advisor_held_connections",
    "Connections that wait on purpose: listeners to events, held polls of people, and hosts that wait for a run.",
    "own", kind=("stream", "poll", "host"),
)  # fmt: skip
PROBLEMS = Metric(
    Counter, "advisor_problems", "Error answers, by type (docs/problems.md).", "own",
    problem=ROUTES,
)  # fmt: skip
POOL = Metric(
    Gauge, "advisor_database_connections", "Connections to the database of this process.", "own",
    state=("used", "idle"),
)  # fmt: skip
PART_UP = Metric(
    Gauge, "advisor_part_up", "1 if a part answers, as in `/ready`; 0 if not.", "own",
    part=("database", "redis", "workers", "bots", "disk"),
)  # fmt: skip
BUILD = Metric(
    Gauge, "advisor_build_info", "1, with the versions of the service and of its model of the engines.", "own",
    version=(__version__,), engine_model=(ENGINE_MODEL,),
)  # fmt: skip
BUILD.of(__version__, ENGINE_MODEL).set(1)
for _kind in HELD.labels["kind"]:
    HELD.of(_kind).set(0)

ADVICE_ASKED = Metric(
    Counter, "advisor_advice_requests", "Requests for advice: answered from what was computed before, joined to one in "
    "flight, or new.", "shared", answer=("ready", "joined", "new"),
)  # fmt: skip
ADVICE_REFUSED = Metric(
    Counter, "advisor_advices_refused", "Requests for advice refused: the client or all clients together have too many "
    "open, or it would take too much CPU time; and requests ended when they had used that much (`budget`).",
    "shared", reason=("client", "all", "estimate", "budget"),
)  # fmt: skip
ADVICE_ENDED = Metric(
    Counter, "advisor_advices", "Requests for advice that have ended.", "shared", outcome=("ready", "failed", "retried")
)
ADVICE_SECONDS = Metric(
    Histogram, "advisor_advice_phase_seconds", "Seconds of computing advice, by phase.", "shared", _WORK_SECONDS,
    phase=("listing", "headers", "computing"),
)  # fmt: skip
ADVICE_WAIT = Metric(
    Histogram, "advisor_advice_wait_seconds", "Seconds from a request for advice to its end, including the queue.",
    "shared", _WORK_SECONDS,
)  # fmt: skip
HUB_REQUESTS = Metric(
    Counter, "advisor_hub_requests", "Requests to the Hub: listings of repos, and reads (each hop of a redirect).",
    "shared", kind=("listing", "read"), status=_STATUS,
)  # fmt: skip
HUB_BYTES = Metric(Counter, "advisor_hub_received_bytes", "Bytes of bodies read from the Hub.", "shared")
HUB_RETRIES = Metric(Counter, "advisor_hub_retries", "Requests to the Hub that were retried.", "shared")
HUB_LIMITED = Metric(Counter, "advisor_hub_rate_limited", "Answers of the Hub with status 429.", "shared")
HUB_LEFT = Metric(
    Gauge, "advisor_hub_rate_limit_remaining_requests",
    "Requests left in the Hub's window, by its header `RateLimit`; missing until the Hub says so.", "shared",
    bucket=("api", "resolvers", "pages", OTHER),
)  # fmt: skip
HUB_ANSWERED = Metric(
    Gauge, "advisor_hub_last_answer_timestamp_seconds", "When the Hub last answered (any status but 429 and 5xx).",
    "shared",
)  # fmt: skip
HUB_FAILED = Metric(
    Gauge, "advisor_hub_last_failure_timestamp_seconds", "When the Hub last did not answer, or answered 429 or 5xx.",
    "shared",
)  # fmt: skip
HEADERS = Metric(
    Counter, "advisor_header_cache_lookups", "Headers looked for in the cache.", "shared", outcome=("hit", "miss")
)
PREDICTED = Metric(
    Histogram, "advisor_prediction_ratio", "Measured speed over predicted, of runs on the very machine that the advice "
    "was for: 1 is exact.", "shared", _RATIOS, engine=("ik_llama.cpp", "llama.cpp"), phase=("pp", "tg"),
)  # fmt: skip
RUNS_ENDED = Metric(
    Counter, "advisor_run_reports", "Reports of hosts, by the outcome of the run; `queued`: it will be retried.",
    "shared", outcome=("succeeded", "failed", "queued", "cancelled"),
)  # fmt: skip
LEASES_LOST = Metric(
    Counter, "advisor_runs_taken_back", "Runs whose host went silent (their lease ended), or that no host took.",
    "shared",
)  # fmt: skip
BOT_MESSAGES = Metric(
    Counter, "advisor_bot_messages", "Messages to Discord and Slack: taken, to be sent again, their address gone, or "
    "refused.", "shared", outcome=("sent", "later", "gone", "refused"),
)  # fmt: skip
BOT_GONE = Metric(
    Counter, "advisor_bot_messages_gone", "Messages that could not be delivered: the address had expired, the bot may "
    "not write there, the person cannot be messaged, or the bot's token is not accepted.", "shared",
    why=("expired", "not-invited", "unreachable", "token"),
)  # fmt: skip
BOT_ANSWERS_LOST = Metric(
    Counter, "advisor_bot_answers_lost", "Answers to questions in chat that reached nobody.", "shared",
    platform=("discord", "slack"), why=("expired", "not-invited", "unreachable", "token", "refused", "abandoned"),
)  # fmt: skip
BOT_SECONDS = Metric(
    Histogram, "advisor_bot_answer_seconds", "Seconds from a question to a bot to its answer.", "shared", _WORK_SECONDS
)
JOB_SUCCEEDED = Metric(
    Gauge, "advisor_job_last_success_timestamp_seconds", "When a scheduled job (docs/operating.md) last succeeded.",
    "shared", job=("advices", "runs", "trust", "logs", "published", "dumps", "purge", "calibrate"),
)  # fmt: skip

ADVICES = Metric(
    Gauge, "advisor_advices_unfinished", "Requests for advice that are not final.", "asked", state=("queued", "running")
)
ADVICE_LANES = Metric(
    Gauge, "advisor_advices_waiting", "Waiting requests for advice, by lane: short ones are estimated to take up to 5 "
    "CPU seconds.", "asked", lane=("short", "long"),
)  # fmt: skip
ADVICE_AGE = Metric(
    Gauge, "advisor_oldest_queued_advice_seconds", "Age of the oldest waiting request for advice.", "asked"
)
RUNS = Metric(
    Gauge, "advisor_runs_unfinished", "Runs that are not final.", "asked", state=("queued", "leased", "running")
)
RUN_AGE = Metric(Gauge, "advisor_oldest_queued_run_seconds", "Age of the oldest run waiting for a host.", "asked")
HOSTS_ONLINE = Metric(Gauge, "advisor_hosts_online", "Active hosts that called in the last two minutes.", "asked")
QUESTIONS = Metric(Gauge, "advisor_bot_questions_open", "Questions to bots that are not answered.", "asked")
QUESTION_LATE = Metric(
    Gauge, "advisor_bot_question_overdue_seconds", "How long the question that is most overdue has been due; 0 if "
    "none is.", "asked",
)  # fmt: skip
REMOVALS = Metric(Gauge, "advisor_removal_requests_open", "Requests to remove a result, not decided yet.", "asked")
REMOVAL_AGE = Metric(
    Gauge, "advisor_oldest_removal_request_seconds", "Age of the oldest request for removal; 0 where none is.", "asked"
)
DIFFERENCES = Metric(
    Gauge, "advisor_memory_differences", "Differences between printed and computed buffers that no operator has "
    "settled: unconfirmed, shown by a known owner, or by so many that answers mention it.",
    "asked", state=("unconfirmed", "open", "warned"),
)  # fmt: skip
WORKERS = Metric(Gauge, "advisor_workers", "Workers that have reported recently.", "asked")


def _count(event: counting.Event, amount: int) -> None:
    if event in ("hit", "miss"):
        HEADERS.of(event).inc(amount)
    else:
        (HUB_BYTES if event == "received" else HUB_RETRIES).only.inc(amount)


def _count_answer(kind: str, status: int | None, left: Mapping[str, int]) -> None:
    HUB_REQUESTS.of(kind, status_class(status)).inc()
    if status == 429:
        HUB_LIMITED.only.inc()
    failed = status is None or status == 429 or status >= 500
    (HUB_FAILED if failed else HUB_ANSWERED).only.set(time.time())
    for window, requests in left.items():
        HUB_LEFT.of(window).set(requests)


counting.listen(_count, _count_answer)


def status_class(status: int | None) -> str:
    """Return `2xx` for 204; `none` where there was no answer."""
    return f"{status // 100}xx" if status and 100 <= status < 600 else "none"
