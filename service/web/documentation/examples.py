"""Examples for the API's documentation, each validated as a request or answer when it is built."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.openapi.spec import Example

from service.engine.goal import GoalRequest, resolve_goal
from service.wire.advice.advice import Advice, AdviceRequest, CreatedAdvice
from service.wire.advice.check import CheckRequest
from service.wire.advice.hardware import HardwareQuestion
from service.wire.measuring.hosts import EnrolmentRequest, HostChange
from service.wire.measuring.runs import ValidationRequest
from service.wire.results.moderation import AbuseReport, Moderation, RemovalRequest
from service.wire.results.submissions import Correction, Submission

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
REPO = "unsloth/Qwen3-235B-A22B-GGUF"
COMMAND = "llama-server -m Qwen3-235B-A22B-Q4_K_M.gguf -c 32768 -ngl 99 -fa -ot exps=CPU"
_ID = "V1StGXR8Z5jdHi6BmyT0Ag"


def _example(name: str, summary: str, value: Any) -> Example:
    return Example(id=name, summary=summary, value=msgspec.to_builtins(value))


def _asked(shape: type[Any], summary: str, /, **fields: Any) -> Example:
    """Return an example of a body with only these fields. Raises ValidationError if they are not a valid `shape`."""
    msgspec.convert(fields, shape)
    return Example(id=summary.lower().replace(" ", "-"), summary=summary, value=fields)


def _queued() -> CreatedAdvice:
    goal = resolve_goal(GoalRequest(min_tg=8, min_pp=100), 40_960)
    hardware = {"gpus": [{"name": "NVIDIA GeForce RTX 3090"}], "cpu": {"model": "AMD Ryzen 9 7950X"}}
    fields = {
        "id": _ID,
        "state": "queued",
        "repo": REPO,
        "revision": "0e9003194e75b699f924f4694c6e9e9a65b35248",  # the framework drops nulls from examples
        "hardware": hardware,
        "goal": msgspec.to_builtins(goal),
        "progress": "waiting for a worker",
        "url": f"http://127.0.0.1:8000/v1/advice/{_ID}",
        "delete_key": "shown once, here",
    }
    return msgspec.convert(fields, CreatedAdvice)


def _ready() -> Advice:
    fields = {**msgspec.to_builtins(_queued()), "state": "ready", "progress": None, "considered": 412}
    fields["headline"] = "What to run, how fast it is, and what fits where, in one sentence."
    return msgspec.convert(fields, Advice)


ADVICE_REQUEST = _example(
    "shorthand",
    "A repo and hardware in shorthand",
    AdviceRequest(repo=REPO, hardware=RIG, goal=GoalRequest(preset="agent")),
)
QUEUED_ADVICE = _example("queued", "Queued; configs follow when it is ready", _queued())
READY_ADVICE = _example("ready", "Ready, without its configs", _ready())
ADVICE = Example(summary=READY_ADVICE.summary, value=READY_ADVICE.value)
CHECK_REQUEST = _example(
    "command",
    "A command with an option of an older build",
    CheckRequest(command=COMMAND, repo=f"{REPO}:Q4_K_M", hardware=RIG),
)
SUBMISSION = _example(
    "paste",
    "A command with its output, and the machine",
    Submission(
        text=f"$ ./llama-sweep-bench -m {REPO}/Q4_K_M/Qwen3-235B-A22B-Q4_K_M-00001-of-00003.gguf"
        " -c 8192 -ngl 99 -fa on -ot exps=CPU\n\n"
        "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n"
        "|   512 |    128 |      0 |    4.120 |   124.27 |    8.930 |    14.33 |\n"
        "|   512 |    128 |    512 |    4.190 |   122.20 |    9.010 |    14.21 |\n",
        hardware=RIG,
    ),
)
VALIDATION_REQUEST = _asked(ValidationRequest, "Five minutes for each of the best configs", minutes=5)
HARDWARE_QUESTION = _asked(
    HardwareQuestion, "A rig in shorthand", text="2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8"
)
CORRECTION = _asked(Correction, "More is known of the machine", remarks="two DIMMs only", hardware=RIG)
ENROLMENT_REQUEST = _asked(EnrolmentRequest, "A host for its owner alone", visibility="private")
HOST_CHANGE = _asked(HostChange, "Approve a host", state="active")
ABUSE_REPORT = _asked(AbuseReport, "An impossible speed", kind="wrong-figures", text="TG is above the RAM's bandwidth")
REMOVAL_REQUEST = _asked(
    RemovalRequest, "It names somebody", text="my name is in the remarks", contact="me@example.org"
)
MODERATION = _asked(Moderation, "Hide a result", action="hide", subject=_ID, reason="somebody's name is in its remarks")
