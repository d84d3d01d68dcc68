"""The app behind a real HTTP server on a free loopback port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from litestar import Litestar

from service.web.http.connections import IDLE_SECONDS, MAX_HEAD_BYTES, BoundedConnection


@contextmanager
def serving(app: Litestar) -> Iterator[str]:
    """Serve `app` in a thread for the length of the block; the value is its address."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,  # as `advisor serve` runs it: the app has a log of its own
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=1,
        loop="asyncio",
        http=BoundedConnection,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


@contextmanager
def client_of(app: Litestar) -> Iterator[httpx.Client]:
    """Serve `app` and return a client of it that uses no proxy."""
    with serving(app) as address, httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        yield client
