"""Time from request to advice, and what it costs on the Hub: `python -m bench.advice`.

The whole service runs as `advisor serve` starts it, with two workers, against a local Hub on the same machine (no
latency added). Cold: nothing known of the repo. Other hardware: headers cached. Cached: the same question
again, answered from the database.
"""

from __future__ import annotations

import statistics
import time

import httpx

from bench.stamp import stamp
from tests.demo import QUESTIONS, ask, service_running
from tests.local_hub import LocalHub

OTHER_HARDWARE = "2x3090, EPYC 7713, 256GB DDR4-3200 x8"
REPEATS = 30


def main() -> None:
    """Print one row a repo."""
    print(stamp())
    print(f"{'repo':<34}{'cold s':>8}{'other hw s':>12}{'cached ms':>11}{'p95 ms':>8}{'requests':>10}{'MB read':>9}")
    for repo, hardware in QUESTIONS:
        with LocalHub() as hub, service_running(hub.endpoint) as url:
            advice, _, cold = ask(url, repo, hardware)
            requests, n_bytes = len(hub.requests), hub.n_bytes
            _, _, other = ask(url, repo, OTHER_HARDWARE)
            assert len(hub.requests) == requests, "the second question asked the Hub again"
            middle, high = cached_ms(url, repo, hardware)
            print(
                f"{repo:<34}{cold:>8.1f}{other:>12.1f}{middle:>11.1f}{high:>8.1f}{requests:>10}{n_bytes / 1e6:>9.1f}"
                f"  {advice.considered} candidates, {len(advice.configs)} configs"
            )


def cached_ms(url: str, repo: str, hardware: str) -> tuple[float, float]:
    """Return median and 95th percentile, in ms, of a question that was answered before."""
    taken = []
    with httpx.Client(base_url=url) as client:
        for _ in range(REPEATS):
            started = time.perf_counter()
            client.post("/v1/advice", json={"repo": repo, "hardware": hardware}).raise_for_status()
            taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken), statistics.quantiles(taken, n=20)[-1]


if __name__ == "__main__":
    main()
