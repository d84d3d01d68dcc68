"""Send a running service bodies that are nearly right: `python -m bench.contract.payloads --seconds 60 --seed 1`.

Good bodies of every operation, page form, agent's call and bot's payload, all signed where that is due, are changed:
values of other types, huge numbers, NaN, lone surrogates, NUL, very long and deeply nested ones; bytes flipped and cut.
Whatever comes must be answered below 500, within SLOW_SECONDS, and a refusal in JSON with a sentence; the service may
not grow by more than MOST_MIB. What fails is written to bench/results/found/ and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import msgspec
import psutil

from bench.contract.world import COMMAND, GOAL, NOWHERE, World, world
from bench.soak import keep, mutated
from bench.stamp import stamp
from tests.bots import discord_payloads, slack_payloads
from tests.bots.platforms import SLACK_HOOKS
from tests.end_to_end.stack import REPO
from tests.flows.results.submitted import sweep
from tests.hosts import PROBE

SLOW_SECONDS, MOST_MIB, MOST_FAILURES = 5.0, 256, 20
RIG = "2x RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
_ONCE = ("id", "trigger_id")  # of what a platform sends: what came before is not taken again
_BODY, _FORM = "application/json", "application/x-www-form-urlencoded"
NASTY: tuple[Any, ...] = (
    *(None, True, [], {}, "", " ", "null", "\x00", "a\x00b", "\ud800", "\u202e", "é" * 300, "x" * 70_000, "[" * 2_000),
    *(0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.0, -0.0, 1e-320, 1e308, float("nan")),
    *(float("inf"), [None] * 3_000, {"a": {"a": {"a": 1}}}, "../../etc/passwd", "http://127.0.0.1:6379/", "a/b:c@d"),
    *(
        "(a+)+$" + "a" * 60,
        "%s%n",
        "' OR 1=1 --",
        "{{7*7}}",
        "<script>",
        "=1+1",
        "2026-13-45",
        "9" * 5_000,
        "-ot " * 500,
    ),
)


class Target(NamedTuple):
    """A way to send something: its method and path, a good body, and how it is encoded and signed."""

    method: str
    path: str
    body: dict[str, Any]
    kind: str = "json"  # or form, agent, discord, slack


def targets(found: World) -> list[Target]:
    """Return every endpoint that takes a body, with good ones."""
    advice, result, run = found.advice()["id"], found.result()["id"], None
    found.validation(advice)
    run = found.run()
    asked = {"repo": REPO, "hardware": msgspec.to_builtins(PROBE.hardware), "goal": GOAL, "what_if": ["+1 RTX 3090"]}
    sent = {"text": f"$ {COMMAND}\n\n{sweep()}", "repo": REPO, "hardware": RIG, "remarks": "at night"}
    check = {"command": COMMAND, "repo": REPO, "hardware": RIG, "log": sweep(), "depths": [0, 4096]}
    limits = {"min_bpw": 2.0, "keep_flags": True, "current_command": COMMAND, "variants": ["F32"], "reserve_mib": 512}
    rows = [{"n_kv": 0, "n_prompt": 512, "n_gen": 64, "pp_seconds": [0.1], "tg_seconds": [0.3]}]
    report = {"fence": run["fence"], "rows": rows, "log": sweep(), "load_seconds": 1.5}
    failed = {"fence": run["fence"], "failure": {"kind": "crashed", "transient": False, "text": "it ended"}}
    progress = {"fence": run["fence"], "step": "measuring", "rows": rows, "text": "1 of 4"}
    api = [
        Target("POST", "/v1/advice", asked),
        Target("POST", "/v1/advice", {"repo": REPO, "hardware": RIG, "constraints": limits}),
        Target("POST", "/v1/check", check),
        Target("POST", "/v1/hardware/parse", {"text": RIG}),
        Target("POST", "/v1/results/preview", sent),
        Target("POST", "/v1/results", sent),
        Target("PATCH", f"/v1/results/{result}", {"remarks": "two DIMMs", "hardware": RIG}),
        Target("POST", f"/v1/results/{result}/reports", {"kind": "spam", "text": "no"}),
        Target("POST", f"/v1/advice/{advice}/validations", {"mode": "validate", "baseline": True, "minutes": 20}),
        Target("POST", "/v1/hosts/enrolments", {"visibility": "public"}),
        Target("POST", "/v1/moderation", {"action": "hide", "subject": result, "reason": "not a measurement"}),
        Target("POST", "/v1/agent/greeting", {"code": "ABCD-EFGH-JKLM"}),
        Target("POST", "/v1/agent/probe", msgspec.to_builtins(PROBE), "agent"),
        Target("POST", f"/v1/agent/runs/{run['run']}/progress", progress, "agent"),
        Target("POST", f"/v1/agent/runs/{run['run']}/report", report, "agent"),
        Target("POST", f"/v1/agent/runs/{run['run']}/report", failed, "agent"),
    ]
    return [*api, *_forms(result), *_chat()]


def _forms(result: str) -> Iterator[Target]:
    ask = {"repo": REPO, "gpus": "2x RTX 3090", "cpu": "Ryzen 9 7950X", "ram": "128GB", "preset": "chat", "depth": "0"}
    yield Target("POST", "/advice", {**ask, "what_if": "+1 RTX 3090", "variants": "F32"}, "form")
    yield Target("POST", "/submit", {"text": sweep(), "command": COMMAND, "hardware": RIG, "repo": REPO}, "form")
    yield Target("POST", f"/results/{result}/changes", {"key": "x", "remarks": "a", "hardware": RIG}, "form")
    yield Target("POST", f"/results/{result}/reports", {"kind": "spam", "text": "no"}, "form")
    yield Target("POST", "/advice/none/deletion", {"key": "x"}, "form")


def _chat() -> Iterator[Target]:
    words = {"repo": REPO, "hardware": RIG}
    for payload in (
        discord_payloads.command("advise", words),
        discord_payloads.typing("advise", "hardware", "RTX 3"),
        discord_payloads.on_message("Check this command", COMMAND),
        discord_payloads.form_sent("check", {"command": COMMAND, "hardware": RIG}),
        discord_payloads.button("more:1"),
    ):
        yield Target("POST", "/bots/discord", payload, "discord")
    form = slack_payloads.command(f"advise {REPO} {RIG}")
    here = {name: value.replace(SLACK_HOOKS, NOWHERE) for name, value in form.items()}
    yield Target("POST", "/bots/slack/commands", here, "slack")


# --- changing -----------------------------------------------------------------------------------------------------


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a body."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        found += [(value, key), *places(one)]
    return found


def changed(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a body with one to three values changed, removed, doubled or nested deeply."""
    made: dict[str, Any] = json.loads(json.dumps(body))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not (found := places(made)):
            break
        container, key = rng.choice(found)
        kind = rng.randrange(8)
        if kind < 5:
            container[key] = deepcopy(rng.choice(NASTY))
        elif kind == 5 and isinstance(container, dict):
            container[rng.choice(("unknown", "id", "\x00", "x" * 500, "__class__"))] = container.pop(key)
        elif kind == 6 and isinstance(container[key], list):
            container[key] = container[key] * rng.choice((2, 50, 2_000))
        else:
            container[key] = nested(rng.choice((30, 250)), container[key])
    return made


def nested(depth: int, value: Any) -> Any:
    """Return `value` inside that many lists."""
    for _ in range(depth):
        value = [value]
    return value


def encoded(rng: random.Random, target: Target) -> bytes:
    """Return a changed body of `target` as bytes: mostly well-formed, now and then with its bytes changed too."""
    body = changed(rng, target.body | {name: str(rng.getrandbits(60)) for name in _ONCE if name in target.body})
    if target.kind in ("form", "slack"):
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()}
        data = urlencode(texts, errors="surrogatepass").encode()
    else:
        data = json.dumps(body).encode()  # with NaN and Infinity, and lone surrogates escaped
    return mutated(rng, [data]) if rng.random() < 0.2 else data


# --- sending ------------------------------------------------------------------------------------------------------


def request_of(found: World, target: Target, data: bytes) -> dict[str, Any]:
    """Return what httpx takes to send `data`, signed as its sender would."""
    if target.kind == "discord":
        sent = discord_payloads.signed(data)
    elif target.kind == "slack":
        sent = slack_payloads.signed(data)
    else:
        kinds: dict[str, Callable[[], dict[str, str]]] = {
            "agent": lambda: found.agent.headers(target.path, data),
            "form": lambda: {"content-type": _FORM},
            "json": lambda: {"content-type": _BODY, **found.all},
        }
        sent = {"content": data, "headers": kinds[target.kind]()}
    return {**sent, "headers": {**sent["headers"], **found.address()}}


def attempt(found: World, target: Target, data: bytes) -> str:
    """Return the status, or what is wrong with the answer (starting with FAILED)."""
    started = time.perf_counter()
    try:
        reply = found.client.request(target.method, target.path, **request_of(found, target, data))
    except httpx.TransportError as error:
        return f"FAILED: no answer: {type(error).__name__}"
    took = time.perf_counter() - started
    if reply.status_code >= 500 and reply.json().get("type", "").endswith("internal"):
        return f"FAILED: {reply.status_code}"
    if took > SLOW_SECONDS:
        return f"FAILED: took {took:.1f} s"
    if target.kind in ("json", "agent") and reply.status_code >= 400 and not reply.json().get("detail"):
        return f"FAILED: {reply.status_code} without a word"
    if target.kind == "agent" and reply.status_code in (401, 403):
        found.new_agent()
    return str(reply.status_code)


def grown(found: World, before: int) -> int:
    """Return by how many MiB the service and its children have grown."""
    return (resident(found) - before) >> 20


def resident(found: World) -> int:
    """Return the bytes of memory of the service and its children."""
    assert found.service.process is not None
    family = [found.service.process, *found.service.family()]
    return sum(one.memory_info().rss for one in family if psutil.pid_exists(one.pid))


def run(found: World, seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Send for `seconds`; return the number of answers by way and status, and the failures."""
    rng, several = random.Random(seed), targets(found)
    counts, failures = Counter[str](), list[str]()
    for target in several:  # whole ones first, so that what is loaded once is loaded
        attempt(found, target, encoded(random.Random(0), target._replace(body=target.body)))
    before, end = resident(found), time.monotonic() + seconds
    while time.monotonic() < end and len(failures) < MOST_FAILURES:
        target = rng.choice(several)
        data = encoded(rng, target)
        outcome = attempt(found, target, data)
        counts[f"{target.kind}: {outcome.split(' (')[0]}"] += 1
        if outcome.startswith("FAILED"):
            failures.append(f"{target.method} {target.path} {outcome} ({keep(target.kind, data)})")
    if (more := grown(found, before)) > MOST_MIB:
        failures.append(f"FAILED: the service grew by {more} MiB")
    print(f"seed {seed}, {seconds:g} s, {counts.total():,} bodies over {len(several)} ways in, {more:+} MiB in use")
    return counts, failures


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(stamp())
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as found:
        counts, failures = run(found, arguments.seconds, arguments.seed)
    for name, count in sorted(counts.items()):
        print(f"  {name:<24}{count:>8,}")
    print("\n".join(failures) or "no failure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
