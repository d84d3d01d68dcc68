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
set) that come without a proxy or through one of `ADVISOR_TRUSTED_PROXIES`, and to anyone who sends an operator's token:

```sh
curl -s -H "Authorization: Bearer adv_…" http://127.0.0.1:8000/metrics
```

Names begin with `advisor_`, units are seconds and bytes, and every label has a closed list of values: routes are
templates, clients and accounts are never labels. `process_…` and `python_info` are those of Prometheus' client.

Ask every process of the API. What is of one process is summed over them: `sum by (route)
(rate(advisor_http_requests_total[5m]))`. What is of the whole service is the same in each, but for the seconds that a
process keeps its counts before it adds them up: take `max`, never `sum`, as in `max without (instance)
(advisor_advices_unfinished)`. Redis may be wiped at any moment: such a counter then begins at 0 again, as after a
restart, which `rate` and `increase` know. A worker that is killed takes the counts of its present job with it.

What the database says is asked at most once in five seconds. Where it does not answer, its metrics are missing and
`advisor_part_up{part="database"}` is 0; whatever hangs, `/metrics` answers within two seconds.
[alerts.yml](../deploy/alerts.yml) has rules on these, [the runbook](runbook.md) what to do.

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
