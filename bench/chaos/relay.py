"""A relay between two parts: it passes bytes on, and can stall or cut every connection that goes through it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path

_PIECE = 1 << 16
_CONNECT_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: what is not sent yet is thrown away, and the other end told
End = int | Path


class Relay:
    """Listens on a port of 127.0.0.1 and connects each client to the next of `ends` that accepts it.

    An end is a port of 127.0.0.1 or the path of a unix socket.
    """

    def __init__(self, ends: Sequence[End]) -> None:
        self._ends, self._turn = tuple(ends), count()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name=f"relay {self.port}", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Reset every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def stall(self) -> None:
        """Hold everything back until `flow`."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def flow(self) -> None:
        """Pass everything on, including what came meanwhile."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        """End every connection and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()
        self._cut()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._listener.close()
        self._loop.close()

    def _cut(self) -> None:
        for writer in list(self._open):
            with contextlib.suppress(OSError, AttributeError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        far = await self._connected()
        if far is None:
            writer.transport.abort()
            return
        self._open |= {writer, far[1]}
        try:
            await asyncio.gather(self._pass_on(reader, far[1]), self._pass_on(far[0], writer))
        except OSError:  # one end is gone: so is the other
            writer.transport.abort()
            far[1].transport.abort()
        finally:
            self._open -= {writer, far[1]}
            for one in (writer, far[1]):
                one.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._turn)
        for i in range(len(self._ends)):
            end = self._ends[(first + i) % len(self._ends)]
            with contextlib.suppress(OSError):
                opened = (
                    asyncio.open_unix_connection(end) if isinstance(end, Path)
                    else asyncio.open_connection("127.0.0.1", end)
                )  # fmt: skip
                return await asyncio.wait_for(opened, _CONNECT_SECONDS)
        return None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            await self._flows.wait()
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
