"""The HTTP server around the app: its socket, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
from litestar import Litestar

from service.errors import InvalidSetting
from service.logs import Log
from service.settings import Settings
from service.web.http.connections import IDLE_SECONDS, MAX_HEAD_BYTES, BoundedConnection, most_connections
from service.web.services import Drain, Services

log = Log("web")

REQUEST_GRACE_SECONDS = 10  # for requests being answered; those that only wait are ended at once
_SWITCH_SECONDS = (
    0.0005  # for which a computing thread may delay the event loop, ten of them ten times as long; the default is 5 ms
)


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Listen at the configured address for the block. Raises InvalidSetting."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = _bound(family, settings)
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        field = "ADVISOR_HOST" if isinstance(error, socket.gaierror) else "ADVISOR_PORT"
        raise InvalidSetting(f"cannot listen on {where}: {error.strerror}", field=field) from error
    with listener:
        yield listener


def _bound(family: int, settings: Settings) -> socket.socket:
    """Return a listening socket.

    asyncio sets TCP_NODELAY, without which an answer waits 40 ms, only on sockets that name their protocol, which
    `socket.create_server` does not do.
    """
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


async def answer(app: Litestar, settings: Settings, listener: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT; print `Listening on URL` at the start."""
    BoundedConnection.most = most_connections()
    sys.setswitchinterval(_SWITCH_SECONDS)
    _collect_rarely()
    services: Services = app.state.services
    await _Server(server_config(app), services.drain, settings.drain_seconds).serve([listener])


def _collect_rarely() -> None:
    """Exempt long-lived objects from garbage collection, and collect the rest rarely.

    A full collection delays every request: 140 ms with all modules, and 70 ms with 700 held connections. One of the
    middle generation takes 60 ms if it comes after 100,000 objects; here it comes after 25,000 (bench.api).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 5, 400)


def server_config(app: Litestar) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=REQUEST_GRACE_SECONDS,
        http=BoundedConnection,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )


class _Server(uvicorn.Server):
    """Announces when it answers, and ends in steps, before whatever runs alongside it."""

    def __init__(self, config: uvicorn.Config, drain: Drain, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain, self._drain_seconds = drain, drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            print(f"Listening on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, self._drain_seconds)
        loop.add_signal_handler(signal.SIGINT, self._end, 0)
        yield

    def _end(self, drain_seconds: float) -> None:
        """Handle a signal: SIGTERM drains first; a second one, or Ctrl-C, leaves at once; a further one waits for
        nobody."""
        log.info("process.ending")
        if self.should_exit:
            self.force_exit = True
        elif self._drain.begun or not drain_seconds:
            self._leave()
        else:
            self._drain.begin()
            asyncio.get_running_loop().call_later(drain_seconds, self._leave)

    def _leave(self) -> None:
        self._drain.leave()
        self.should_exit = True
