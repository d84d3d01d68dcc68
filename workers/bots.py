"""The process that answers Discord and Slack: `python -m workers.bots`. Needs REDIS_URL; `advisor serve` starts it.

It is a process of its own so that a slow answer never delays the acknowledgements, which the web process sends.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial

import anyio
from anyio import CapacityLimiter, Event, from_thread, to_thread

from service import logs
from service.bots.dispatcher import Dispatcher
from service.bots.sending import new_client
from service.engine.errors import AdvisorError
from service.errors import InvalidSetting
from service.flows.chat import interactions
from service.flows.context import Context, open_context, preload
from service.flows.operations import components
from service.logs import Log
from service.queue.connection import connect_async
from service.settings import Settings, load_settings
from service.structs import learn_structs
from service.web.http.limits import Bucket, RateLimits
from service.wire.bots import Interaction

log = Log("bots")

AT_ONCE = 4  # questions handled in parallel, each in a thread
LOOK_SECONDS = 0.5  # between looks for due questions when nobody announces a new one
_RENEW_SECONDS = interactions.CLAIM_SECONDS / 3
_SEEN_SECONDS = components.BOTS_SECONDS / 6
_REDIS_SECONDS = 2.0
_PAUSE_SECONDS = 2.0  # after the database failed to answer


class QuestionWorker:
    """Claims questions and hands them to the dispatcher, at most AT_ONCE at a time."""

    def __init__(self, context: Context, dispatcher: Dispatcher) -> None:
        self._context, self._dispatcher = context, dispatcher
        self._threads = CapacityLimiter(AT_ONCE)
        self._held: set[str] = set()
        self._hint = Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen)
            group.start_soon(self._renew)
            group.start_soon(self._be_seen)
            while True:
                self._hint = Event()  # before we look: whatever is announced or done meanwhile, we look again at once
                for asked in await self._due():
                    self._held.add(asked.id)
                    group.start_soon(self._look, asked)
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._hint.wait()

    async def _be_seen(self) -> None:
        """Announce periodically that this process is alive, and send its metrics."""
        while True:
            with suppress(AdvisorError):  # Redis does not answer: that is logged, and the next round tries again
                await to_thread.run_sync(components.bots_are_there, self._context.redis)
                await to_thread.run_sync(components.send_counts, self._context.redis)
            await anyio.sleep(_SEEN_SECONDS)

    async def _due(self) -> list[Interaction]:
        free = AT_ONCE - len(self._held)
        try:
            return await to_thread.run_sync(interactions.claim, self._context, free) if free else []
        except AdvisorError as error:
            log.warning("task.failed", task="claiming questions", detail=error.detail)
            await anyio.sleep(_PAUSE_SECONDS)
            return []

    async def _look(self, asked: Interaction) -> None:
        try:
            await to_thread.run_sync(self._dispatcher.look, asked, limiter=self._threads)
        except AdvisorError as error:
            log.warning("question.postponed", question_id=asked.id, detail=error.detail)
        finally:
            self._held.discard(asked.id)
            self._hint.set()

    async def _listen(self) -> None:
        redis = connect_async(self._context.settings.redis_url or "")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(redis.aclose)
            async for _ in await stack.enter_async_context(interactions.asked(redis)):
                self._hint.set()

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(_RENEW_SECONDS)
            try:
                await to_thread.run_sync(interactions.renew, self._context, sorted(self._held))
            except AdvisorError as error:
                log.warning("task.failed", task="renewing questions", detail=error.detail)


async def run(settings: Settings) -> None:
    """Answer questions until SIGTERM or SIGINT. Raises InvalidSetting, QueueUnavailable."""
    if not settings.has_bots:
        raise InvalidSetting("no bot is set up: docs/discord.md and docs/slack.md say how", field="ADVISOR_PUBLIC_URL")
    async with AsyncExitStack() as stack:
        context = stack.enter_context(open_context(settings))
        client = stack.enter_context(new_client(settings))
        redis = connect_async(settings.redis_url or "", _REDIS_SECONDS)
        stack.push_async_callback(redis.aclose)
        limits = RateLimits(redis, settings.streams_per_client)
        new_repos = Bucket("new-repos", settings.new_repos_per_hour, 3600, "requests for repos not yet read here")
        count = partial(limits.take, new_repos, needs_redis=True)
        learn_structs()
        work = QuestionWorker(context, Dispatcher(context, client, partial(from_thread.run, count)))
        async with anyio.create_task_group() as group:
            group.start_soon(work.run)
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    group.cancel_scope.cancel()
                    break


def main() -> int:
    """Answer until told to stop. Questions still in progress are taken up again by the next process."""
    try:
        settings = load_settings(os.environ)
        logs.configure("bots", settings.log_level)
        preload(settings)
        log.info("process.started")
        anyio.run(run, settings)
    except AdvisorError as error:
        print(f"bots: {error.detail}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
