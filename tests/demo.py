"""The main job, end to end, as a user would do it: serve, ask twice, check the answers, stop. `make demo` runs it.

Everything is real but the Hub, which cannot be reached from everywhere: a local one serves headers of the real models'
shapes. The exit code says whether every check held.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import psutil

from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.hardware_text import parse_hardware
from service.engine.model import Model, build_model
from service.wire.advice.advice import Advice
from tests.checks import attention_is_on_gpus, placement_of, problems_of
from tests.local_hub import LocalHub

R1, QWEN = "ubergarm/DeepSeek-R1-0528-GGUF", "unsloth/Qwen3-235B-A22B-GGUF"
QUESTIONS = (
    (R1, "2x5090 + 2x4090, Xeon 8480+, 512GB DDR5-4800 x8"),
    (QWEN, "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"),
)
START_SECONDS, ANSWER_SECONDS = 60, 120


def main() -> int:
    """Run the demo and return 0 when every check held."""
    failures: list[str] = []
    with LocalHub() as hub, service_running(hub.endpoint) as url:
        print(f"A local Hub at {hub.endpoint} serves the repos (headers of the real shapes, no weights).")
        print(f"The service answers at {url}.\n")
        for repo, hardware in QUESTIONS:
            advice, text, seconds = ask(url, repo, hardware)
            print(f"$ curl -H 'Accept: text/plain' {url}/v1/advice/{advice.id}")
            print(f"{text}\n({seconds:.1f} s from request to advice)\n")
            failures += check(hub, advice, hardware)
    failures += [f"still running: {name}" for name in children()]
    for failure in failures:
        print(f"FAILED {failure}")
    print("demo: failed" if failures else "demo: every check held, nothing is left running")
    return 1 if failures else 0


@contextlib.contextmanager
def service_running(endpoint: str) -> Iterator[str]:
    """Start `advisor serve` with everything embedded; stop it and what it started at the end."""
    with tempfile.TemporaryDirectory(prefix="advisor-demo-") as folder:
        unset = {"DATABASE_URL", "REDIS_URL", "HF_TOKEN"}
        env = {k: v for k, v in os.environ.items() if k not in unset and not k.startswith("ADVISOR_")}
        env |= {"HF_ENDPOINT": endpoint, "ADVISOR_STATE_DIR": folder, "ADVISOR_PORT": "0", "ADVISOR_HOST": "127.0.0.1"}
        log = Path(folder, "serve.log")
        with log.open("w") as out:
            command = [sys.executable, "-m", "service.cli", "serve"]
            process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield _listening(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"Listening on (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the service did not start:\n{log.read_text()[-4000:]}")


def ask(url: str, repo: str, hardware: str) -> tuple[Advice, str, float]:
    """Post a request, wait for the advice, and return it with its text form and the seconds it took."""
    started = time.monotonic()
    with httpx.Client(base_url=url, timeout=60) as client:
        reply = client.post("/v1/advice", params={"wait": 10}, json={"repo": repo, "hardware": hardware})
        reply.raise_for_status()
        advice = msgspec.json.decode(reply.content, type=Advice, strict=False)
        while advice.state in ("queued", "running") and time.monotonic() - started < ANSWER_SECONDS:
            reply = client.get(f"/v1/advice/{advice.id}", params={"wait": 10})
            advice = msgspec.json.decode(reply.content, type=Advice, strict=False)
        seconds = time.monotonic() - started
        text = client.get(f"/v1/advice/{advice.id}", headers={"Accept": "text/plain"}).text
    return advice, text, seconds


def check(hub: LocalHub, advice: Advice, hardware: str) -> list[str]:
    """Return what does not hold of an advice."""
    if advice.state != "ready" or not advice.configs:
        return [f"{advice.repo}: {advice.state}, {advice.problem}, {advice.refused}"]
    rig = resolve(parse_hardware(hardware))
    models: dict[str, Model] = {}
    failures = []
    for config in advice.configs:
        if config.variant not in models:
            models[config.variant] = build_model(hub.header(advice.repo, config.variant))
        failures += problems_of(config, models[config.variant], rig)
    if advice.repo == R1:
        failures += _check_r1(advice, models)
    return failures


def _check_r1(advice: Advice, models: dict[str, Model]) -> list[str]:
    failures = []
    first = advice.configs[0]
    rig = resolve(advice.hardware)
    placement = placement_of(parse(first.commands.server, first.engine), models[first.variant], rig)
    if not attention_is_on_gpus(placement):
        failures.append("the first R1 config has attention or cache off the GPUs")
    named = [r for r in advice.refused if r.engine == "llama.cpp" and r.variant == "IQ4_KS_R4"]
    if not named or "IQ4_KS_R4" not in named[0].reason.upper():
        failures.append("llama.cpp is not refused for IQ4_KS_R4 by name")
    return failures


def children() -> list[str]:
    """Names of processes that this one started and that still run."""
    return [p.name() for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


if __name__ == "__main__":
    sys.exit(main())
