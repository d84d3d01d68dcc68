"""What the app of these tests works with: a real database, the local Hub, and what a test puts there."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select

from service.engine.errors import AdvisorError, InvalidHeader
from service.engine.gguf.header import Header
from service.errors import describe
from service.flows.advice.requests import parse_request, request_key
from service.flows.context import Context, utc_now
from service.hub.cache import FileCache
from service.hub.client import Hub
from service.hub.listing import RepoListing, Variant
from service.hub.references import parse_repo_reference
from service.queue.progress import publish
from service.store.advice import advices, listings, queue
from service.store.advice.advices import StoredAdvice
from service.store.tables import advice, metadata, results_version
from service.store.versions import count_change
from service.wire.advice.advice import AdviceEvent, AdviceRequest
from tests.local_hub import commit_of
from tests.store.advice.test_advices import BODY
from tests.waiting import PATIENCE
from workers.run import make_worker

READY_REPO, NEW_REPO = "Qwen/Qwen3-0.6B-GGUF", "Qwen/Qwen3-4B-GGUF"
READY = AdviceRequest(repo=READY_REPO, hardware="RTX 3090")
DELETE_KEY = "the-key-of-the-asker"
_BODY = msgspec.structs.replace(BODY, headline="Yes: about 18 t/s.")


class HeldHub(Hub):
    """The real client, which a test can hold up: `reading` counts the reads that have begun."""

    def __init__(self, endpoint: str, cache: FileCache) -> None:
        super().__init__(endpoint, cache=cache)
        self.reading = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.may_end.set()

    def read_headers(
        self, listing: RepoListing, variants: Sequence[Variant], in_full: bool = False,
        begin: Callable[[int], object] = lambda _: None,
    ) -> list[Header | InvalidHeader]:  # fmt: skip
        self.reading.release()
        self.may_end.wait(10)
        return super().read_headers(listing, variants, in_full, begin)


class World:
    """The database behind the app. One finished advice, `ready-one`, answers READY; other requests stay queued."""

    def __init__(self, context: Context, hub: HeldHub) -> None:
        self.context, self.hub = context, hub
        self._listing = msgspec.msgpack.encode(hub.list_repo(parse_repo_reference(READY_REPO)))

    def begin(self) -> None:
        """Empty the database but for READY_REPO and its advice."""
        self.hub.may_end.set()
        self.hub.reading = threading.Semaphore(0)
        engine, now, commit = self.context.engine, utc_now(), commit_of(READY_REPO)
        with engine.begin() as connection:
            count_change(connection)
            for table in reversed(metadata.sorted_tables):
                if table is not results_version:
                    connection.execute(delete(table))
        listings.save_listing(engine, READY_REPO, commit, self._listing, now)
        listings.remember_branch(engine, READY_REPO, "main", commit, now)
        self.put_answer("ready-one", READY)

    def put_answer(self, advice_id: str, asked: AdviceRequest) -> None:
        """Store the finished advice that answers a request."""
        request = parse_request(asked)
        self.put(advice_id, "ready", key=request_key(request, commit_of(READY_REPO)), request=request.canonical)

    def put(self, advice_id: str, state: Any, **fields: Any) -> None:
        """Store an advice in this state, in place of what had its id, and tell those who listen."""
        now = utc_now()
        configs = fields.pop("configs", [])
        usual: dict[str, Any] = {
            "repo": READY_REPO, "request": parse_request(READY).canonical, "request_key": advice_id,
            "body": msgspec.structs.replace(_BODY, configs=configs) if state == "ready" else None,
            "delete_key_hash": hashlib.sha256(DELETE_KEY.encode()).hexdigest(), "created_at": now, "updated_at": now,
        }  # fmt: skip
        row = StoredAdvice(id=advice_id, state=state, **(usual | fields))
        with self.context.engine.begin() as connection:
            count_change(connection)
            connection.execute(delete(advice).where(advice.c.id == advice_id))
            connection.execute(insert(advice).values(msgspec.structs.asdict(row)))
        publish(self.context.redis, AdviceEvent(advice_id, state, row.progress))

    def newest(self) -> str:
        """Return the id of the request that was queued last."""
        return self._queued()[-1]

    def _queued(self) -> list[str]:
        found = select(advice.c.id).where(advice.c.state == "queued").order_by(advice.c.created_at)
        with self.context.engine.connect() as connection:
            return list(connection.scalars(found))

    def when_queued(self, act: Callable[[str], None]) -> None:
        """Call `act` with the id of the next request that is queued, in a thread, as soon as there is one."""

        def wait() -> None:
            end = time.monotonic() + PATIENCE
            while not (waiting := self._queued()) and time.monotonic() < end:
                time.sleep(0.01)
            act(waiting[-1])

        threading.Thread(target=wait).start()

    def finish(self, advice_id: str) -> None:
        """Finish a queued advice, as a worker does."""
        queue.finish(self.context.engine, advice_id, _BODY, 0.0, utc_now())
        publish(self.context.redis, AdviceEvent(advice_id, "ready", None))

    def fail(self, advice_id: str, error: AdvisorError) -> None:
        """Fail a queued advice, as a worker does."""
        queue.fail(self.context.engine, advice_id, describe(error), 0.0, utc_now())
        publish(self.context.redis, AdviceEvent(advice_id, "failed", None))

    def delete(self, advice_id: str) -> None:
        """Delete an advice; nobody is told."""
        advices.remove(self.context.engine, advice_id)

    def register_worker(self) -> None:
        """Have a worker be seen, which does nothing."""
        make_worker(self.context.settings).register_birth()  # type: ignore[no-untyped-call]
