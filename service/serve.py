"""`advisor serve`: API, workers, sweeper and an embedded Valkey, in one command that leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread

from service import __version__, logs, metrics
from service.errors import StateInUse
from service.flows import calibration, dumps, runs, seed
from service.flows.advise import requeue_unfinished
from service.flows.context import Context, open_context
from service.flows.retention import purge
from service.logs import Log
from service.queue.embedded import EmbeddedValkey
from service.queue.processes import bound_to_parent
from service.settings import Settings, as_environment, without_bots, without_secrets
from service.store.engines import make_engine
from service.store.migrations import migrate
from service.web import server
from service.web.app import create_app

log = Log("serve")

NIGHTLY_SECONDS = 600.0  # how often it is looked whether it is night
GRACE_SECONDS = 8.0  # for a worker to finish its job; what it does not finish is begun again, by another one
_GIVE_BACK_SECONDS = 2.0
_BOTS = "workers.bots"
_WATCH_SECONDS = 1.0
_FIRST_DELAY, _LONGEST_DELAY, _LIVED_LONG = 0.5, 10.0, 10.0


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; return 0. Prints `Listening on URL` when it answers.

    Raises InvalidSetting, StateInUse, QueueUnavailable or DatabaseUnavailable when it cannot start.
    """
    logs.configure("api", settings.log_level)
    log.info("process.started", detail=f"version {__version__}")
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(server.listening(settings))
        if settings.redis_url is None:
            stack.enter_context(sole_user(settings.state_dir))
        _migrate(settings)
        settings = await stack.enter_async_context(_with_redis(settings))
        context, app = stack.enter_context(open_context(settings)), create_app(settings)
        await stack.enter_async_context(_running(_keep_worker(settings, module) for module in _modules(settings)))
        await stack.enter_async_context(_running([_sweep(context), _nightly(context)]))
        await server.answer(app, settings, listener)


@contextlib.contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Hold the state folder for a block: two embedded servers would write the same file. Raises StateInUse."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "serve.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateInUse(
                f"another `advisor serve` uses {folder.absolute()}: stop it, or set ADVISOR_STATE_DIR",
                field="ADVISOR_STATE_DIR",
            ) from error
        yield


def _migrate(settings: Settings) -> None:
    engine = make_engine(settings.database)
    try:
        migrate(engine)
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def _with_redis(settings: Settings) -> AsyncIterator[Settings]:
    """Return settings with a Redis: theirs, or an embedded one that is started again whenever it ends."""
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
            # In this thread on purpose: the kernel ends a child when the thread that started it does.
            with _logged("the embedded Valkey"):
                server.start()


def _modules(settings: Settings) -> list[str]:
    """Return what runs beside the API, a process each: workers, and who answers Discord and Slack; or nothing."""
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
    for seconds in (GRACE_SECONDS, _GIVE_BACK_SECONDS):  # a worker gives its job back at the second signal
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return
    process.kill()
    await process.wait()


async def _sweep(context: Context) -> None:
    while True:
        with _logged("sweep of advices"):
            requeued = await to_thread.run_sync(requeue_unfinished, context)
            if requeued:
                log.info("advice.requeued", n=requeued)
            metrics.SWEPT.of("advices").set_to_current_time()
        with _logged("sweep of runs"):
            await to_thread.run_sync(runs.sweep, context)
            metrics.SWEPT.of("runs").set_to_current_time()
        with _logged("reading the calibration in force"):
            await to_thread.run_sync(calibration.in_force, context)
        await asyncio.sleep(context.settings.sweep_seconds)


async def _nightly(context: Context) -> None:
    with _logged("adding published results"):
        await to_thread.run_sync(seed.import_published, context.engine, context.clock())
    folder = dumps.folder_of(context.settings)
    while True:
        await asyncio.sleep(NIGHTLY_SECONDS)
        # One replica at a time, of those that share the folder.
        with _logged("the night's dumps"), contextlib.suppress(StateInUse), sole_user(folder):
            if await to_thread.run_sync(dumps.is_due, folder, context.clock()):
                # A process of its own: reading every result would hold up whoever asks meanwhile.
                code = await _work(context.settings, "service.cli", "admin", "dump")
                log.info("dump.ended", code=code)
                for purged in await to_thread.run_sync(purge, context, context.settings):
                    log.info("rows.purged", n=purged.rows, detail=f"{purged.kind} older than {purged.days} days")


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log.error("task.failed", error, task=what)


@contextlib.asynccontextmanager
async def _running(loops: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run coroutines that never end beside the body, and cancel them after it."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
