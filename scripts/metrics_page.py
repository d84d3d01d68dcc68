"""docs/metrics.md: every metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from service.metrics import BUILD, METRICS, PROBLEMS, ROUTES, Metric, Scope

_TITLES: dict[Scope, str] = {
    "own": "Of one process of the API",
    "shared": "Of the whole service, added up in Redis",
    "asked": "Of the whole service, asked at the moment",
}
_INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus' text format, to clients in `ADVISOR_METRICS_NETWORKS` (this machine, unless it is
set) that connect directly or through one of `ADVISOR_TRUSTED_PROXIES`, and to anyone who sends an operator's token:

```sh
curl -s -H "Authorization: Bearer adv_…" http://127.0.0.1:8000/metrics
```

Names begin with `advisor_`, units are seconds and bytes, and every label has a closed list of values: routes are
templates, clients and accounts are never labels. `process_…` and `python_info` come from the Prometheus client.

Scrape every process of the API. Add up the metrics of single processes: `sum by (route)
(rate(advisor_http_requests_total[5m]))`. The metrics of the whole service are the same in each process, except for the
few seconds before a process adds up its counts. Use `max` for them, never `sum`, as in `max without (instance)
(advisor_advices_unfinished)`. Redis may be wiped at any moment. Its counters then start at 0 again, as after a restart,
which `rate` and `increase` handle. If a worker is killed, the counts of its current job are lost.

The database is queried at most once in five seconds. If it does not answer, its metrics are missing and
`advisor_part_up{part="database"}` is 0. `/metrics` answers within two seconds, whatever hangs.
[alerts.yml](../deploy/alerts.yml) has alerting rules for these metrics, and [the runbook](runbook.md) says what to do.

This file is written by `make openapi`.
"""


def metrics_markdown() -> str:
    """Return docs/metrics.md."""
    return "\n".join((_INTRODUCTION, *_sections()))


def _sections() -> Iterator[str]:
    for scope, title in _TITLES.items():
        yield f"## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
        for metric in METRICS:
            if metric.scope == scope:
                yield f"| `{_full(metric)}` | {metric.kind} | {_labels(metric)} | {metric.text} |"
        yield ""


def _full(metric: Metric[Any]) -> str:
    return f"{metric.name}_total" if metric.kind == "counter" else metric.name


def _labels(metric: Metric[Any]) -> str:
    if metric is PROBLEMS:
        return "`problem`: a heading of docs/problems.md"
    if metric is BUILD:
        return "`version`, `engine_model`"
    told = (
        f"`{name}`: a template of a path" if known is ROUTES else f"`{name}`: {', '.join(known)}"
        for name, known in metric.labels.items()
    )
    return "; ".join(told) or "none"
