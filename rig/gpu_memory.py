"""What a server holds of each card and of RAM: once it has loaded, and behind a prompt.

The difference to the printed buffers is what no engine prints: the driver's context, kernels, pools. llama-server is
started as it is in use, without its warm-up, so that nothing is computed before the first look.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from rig.gpu_file import MemorySeen, Taken, last_words
from rig.gpu_plan import Step
from service.engine.commands.render import bash, launch
from service.engine.config import CPU
from service.engine.engines import engine_spec
from service.engine.measured.classify import Failure, FailureKind, classify
from service.engine.measured.summary import memory_of
from service.engine.run_flags import to_flags
from service.engine.units import MIB
from workers.agent.arguments import host_environment
from workers.agent.local import LocalGpu
from workers.agent.probe import Gpus

_LOAD_SECONDS, _ANSWER_SECONDS = 120, 60
_LOOK_SECONDS = 0.25

Stop = Callable[[], str | None]


class Failed(Exception):
    """Not all was seen; `failure` says why, `tail` holds the engine's last words, `seen` what there is nevertheless."""

    def __init__(self, failure: Failure, tail: str, seen: MemorySeen | None) -> None:
        super().__init__(failure.text)
        self.failure, self.tail, self.seen = failure, tail, seen


def see_memory(
    step: Step, program: Path, model: Path, cards: Sequence[LocalGpu], gpus: Gpus, folder: Path, stop: Stop
) -> MemorySeen:
    """Return what llama-server is seen to hold. Raises Failed, with what was seen before it did."""
    log, port = folder / "server.log", _free_port()
    told = launch(
        step.engine, "server", to_flags(step.flags), model_path=str(model), program=str(program), host="127.0.0.1",
        port=port,
    )  # fmt: skip
    loud = (engine_spec(step.engine).logs.sizes_at or "").split()
    names = [card.uuid or str(card.index) for card in cards]
    environment = host_environment(str(folder), "cuda" if cards else "cpu", names)
    before = _cards(gpus, cards)
    short = bash(launch(step.engine, "server", to_flags(step.flags), model_path=model.name))
    idle, after = list[Taken](), list[Taken]()

    def seen() -> MemorySeen:
        return MemorySeen(command=short, idle=idle, after=after, buffers=memory_of(_text(log)).buffers)

    with _started([told.program, *told.arguments, "--no-warmup", *loud], environment, log) as process:
        try:
            _wait_until_loaded(process, port, stop)
            idle = _look(process, gpus, cards, before)
            _answer(port, step.n_prompt)
            after = _look(process, gpus, cards, before)
        except (OSError, psutil.Error, ValueError) as error:
            failure, tail = _failure(step, process, log, str(error))
            raise Failed(failure, tail, seen() if idle else None) from error
    return seen()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def _started(words: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            cwd=log.parent, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_loaded(process: subprocess.Popen[bytes], port: int, stop: Stop) -> None:
    until = time.monotonic() + _LOAD_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ValueError(f"the server ended with {process.returncode} before it had loaded")
        if (why := stop()) is not None:
            raise ValueError(why)
        if _is_loaded(port):
            return
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(f"the server had not loaded after {_LOAD_SECONDS} s")


def _is_loaded(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def _answer(port: int, n_prompt: int) -> None:
    """Have a prompt of tokens worked through, and some tokens behind it.

    Of random weights come tokens that together are no UTF-8: ik_llama.cpp 8337e4cd3 then answers 500, having computed.
    """
    asked = {"prompt": [300 + i % 20_000 for i in range(n_prompt)], "n_predict": 4, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        if error.code != 500:
            raise


def _cards(gpus: Gpus, cards: Sequence[LocalGpu]) -> dict[int, int]:
    return {now.index: now.used for now in gpus.now([card.index for card in cards])}


def _look(
    process: subprocess.Popen[bytes], gpus: Gpus, cards: Sequence[LocalGpu], before: dict[int, int]
) -> list[Taken]:
    now = _cards(gpus, cards)
    seen = [
        Taken(device=f"CUDA{i}", taken=round((now[card.index] - before[card.index]) / MIB, 1))
        for i, card in enumerate(cards)
        if card.index in now and card.index in before
    ]
    held = psutil.Process(process.pid).memory_info()
    return [
        *seen,
        Taken(device=CPU, taken=round((held.rss - held.shared) / MIB, 1), mapped=round(held.shared / MIB, 1)),
    ]


def _text(log: Path) -> str:
    return log.read_text(errors="replace")


def _failure(step: Step, process: subprocess.Popen[bytes], log: Path, why: str) -> tuple[Failure, str]:
    """Return why a server did not answer, and its last words."""
    status, text = process.poll(), _text(log)
    known = None
    if status is not None:
        known = classify(status if status >= 0 else None, -status if status < 0 else None, False, text, step.engine)
    kind: FailureKind = "hung" if status is None else "crashed"
    return known or Failure(kind=kind, transient=False, text=why[:500]), last_words(text)
