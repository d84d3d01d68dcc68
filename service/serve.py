"""`advisor serve`: API, workers, scheduled jobs and an embedded Valkey in one command, which cleans up after itself."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from service import __version__, logs
from service.errors import InvalidSetting, StateInUse
from service.flows.context import open_context
from service.logs import Log
from service.queue.embedded import EmbeddedValkey
from service.queue.processes import bound_to_parent
from service.scheduler import Scheduler
from service.settings import Settings, as_environment, without_bots, without_secrets
from service.store.migrations import migrated
from service.web import server
from service.web.app import create_app

log = Log("serve")

GRACE_SECONDS = 8.0  # for a worker to finish its job; another worker restarts what it does not finish
_GIVE_BACK_SECONDS = 2.0
_BOTS = "workers.bots"
_WATCH_SECONDS = 1.0
_FIRST_DELAY, _LONGEST_DELAY, _LIVED_LONG = 0.5, 10.0, 10.0


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; return 0. Prints `Listening on URL` when it answers.

    Raises InvalidSetting, StateInUse, QueueUnavailable or DatabaseUnavailable when it cannot start.
    """
    logs.configure("api", settings.log_level)
    os.umask(0o077)  # files that this process and its children write are readable for their user only
    log.info("process.started", detail=f"version {__version__}")
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(server.listening(settings))
        if settings.redis_url is None:
            stack.enter_context(sole_user(settings.state_dir))
        with migrated(settings.database):
            pass
        settings = await stack.enter_async_context(_with_redis(settings))
        context, app = stack.enter_context(open_context(settings)), create_app(settings)
        await stack.enter_async_context(_running(_keep_worker(settings, module) for module in _modules(settings)))
        scheduler = Scheduler(context, partial(_work, settings))
        await stack.enter_async_context(_running([scheduler.run()]))
        await server.answer(app, settings, listener)


@contextlib.contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Lock the state folder for the block, since two embedded servers would write the same file.

    Raises StateInUse, or InvalidSetting if the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = (folder / "serve.lock").open("a")
    except OSError as error:
        detail = f"the state folder {folder.absolute()} cannot be written: {error.strerror}"
        raise InvalidSetting(detail, field="ADVISOR_STATE_DIR") from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateInUse(
                f"another `advisor serve` uses {folder.absolute()}: stop it, or set ADVISOR_STATE_DIR",
                field="ADVISOR_STATE_DIR",
            ) from error
        yield


@contextlib.asynccontextmanager
async def _with_redis(settings: Settings) -> AsyncIterator[Settings]:
    """Yield settings with a Redis: the configured one, or an embedded one that is restarted whenever it ends."""
    if settings.redis_url is not None:
        yield settings
        return
    server = EmbeddedValkey(settings.state_dir / "valkey")
    try:
        server.start()
        async with _running([_keep_valkey(server)]):
            yield msgspec.structs.replace(settings, redis_url=server.url)
    finally:
        server.close()


async def _keep_valkey(server: EmbeddedValkey) -> None:
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        if not server.is_running():
            log.warning("valkey.ended")
            # Not in another thread: the kernel ends a child when the thread that started it ends.
            try:
                server.start()
            except Exception as error:
                log.error("task.failed", error, task="the embedded Valkey")


def _modules(settings: Settings) -> list[str]:
    """Return the modules to run along with the API, a process each: workers, and the bots' process if there are any."""
    has_bots = settings.workers and settings.has_bots
    return ["workers.run"] * settings.workers + ([_BOTS] if has_bots else [])


async def _keep_worker(settings: Settings, module: str) -> None:
    delay = _FIRST_DELAY
    while True:
        began = time.monotonic()
        code = None
        try:
            code = await _work(settings, module)
        except OSError as error:
            log.error("process.refused", error, program=module)
        if time.monotonic() - began > _LIVED_LONG:
            delay = _FIRST_DELAY
        log.warning("process.ended", program=module, code=code, pause_seconds=delay)
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY)


async def _work(settings: Settings, *module: str) -> int:
    process = await _start_worker(settings, *module)
    try:
        return await process.wait()
    finally:
        await _end(process)


async def _start_worker(settings: Settings, *module: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *module,
        env=without_secrets(os.environ) | as_environment(settings if _BOTS in module else without_bots(settings)),
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=bound_to_parent(signal.SIGKILL),
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    for seconds in (GRACE_SECONDS, _GIVE_BACK_SECONDS):  # at the second signal, a worker returns its job to the queue
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return
    process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def _running(loops: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run endless coroutines alongside the block, and cancel them after it."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
