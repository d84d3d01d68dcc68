"""A bare Litestar app behind the service's own server, for comparison: `python -m bench.hello`, on a free port."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from litestar import Litestar, get

from service.web.server import server_config


@get("/")
async def hello() -> dict[str, str]:
    """Say so."""
    return {"hello": "world"}


def main() -> None:
    """Answer until told to stop."""
    app = Litestar([hello], openapi_config=None, logging_config=None)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        asyncio.run(uvicorn.Server(server_config(app)).serve([listener]))


if __name__ == "__main__":
    main()
