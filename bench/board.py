"""What the leaderboard costs with 200,000 results and 5,000 advices: `python -m bench.board [--results N]`.

Both databases are filled from a seed (bench/crowd.py), then the real app is asked over HTTP, one question at a time.
A question is asked for the board, each filter, far pages, and pages of results, each time after a change of results, as
answers are kept until then; times are medians in milliseconds.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import psycopg
from sqlalchemy import Engine, event, func, insert, select, text

from bench.crowd import NEWEST, crowd
from bench.stamp import stamp
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.store import tables
from service.store.engines import locked, make_engine
from service.store.migrations import migrate
from service.store.results import board, board_tables, results
from service.store.results.trust import writing
from service.store.versions import count_change
from tests.databases import postgres_server
from tests.hosts import service

REPEATS = 25
BATCH = 2_000
PAGES = 40  # how far pages are followed
QUESTIONS = {
    "the board": "/v1/leaderboard",
    "by PP": "/v1/leaderboard?sort=pp",
    "newest": "/v1/leaderboard?sort=newest",
    "most bits": "/v1/leaderboard?sort=bits",
    "100 rows": "/v1/leaderboard?limit=100",
    "at 16,384 tokens": "/v1/leaderboard?depth=16384",
    "model": "/v1/leaderboard?model={model}",
    "model family": "/v1/leaderboard?arch=deepseek2",
    "variant": "/v1/leaderboard?variant=UD-Q2_K_XL",
    "engine": "/v1/leaderboard?engine=ik_llama.cpp",
    "GPU set": "/v1/leaderboard?rig={rig}",
    "VRAM": "/v1/leaderboard?vram=48",
    "RAM": "/v1/leaderboard?ram=192",
    "platform": "/v1/leaderboard?platform=workstation",
    "replicated": "/v1/leaderboard?trust=replicated",
    "since a month ago": "/v1/leaderboard?since=2026-10-21",
    "since yesterday": "/v1/leaderboard?since=2026-11-20",
    "five filters": "/v1/leaderboard?arch=qwen3moe&vram=24&engine=llama.cpp&ram=64&since=2026-06-01",
    "search": "/v1/leaderboard?q=kimi",
    "search, two words": "/v1/leaderboard?q=deepseek+p40",
    "search, nothing there": "/v1/leaderboard?q=nothing+is+so",
    "a result": "/v1/results/{result}",
    "results": "/v1/results",
    "results of a model": "/v1/results?model={model}",
    "results of a rig, replicated": "/v1/results?rig={rig}&tier=replicated",
    "page: board": "/leaderboard",
    "page: board, filtered": "/leaderboard?arch=qwen3moe&vram=24",
    "page: model": "/models/{model}",
    "page: rig": "/hardware/{rig}",
    "page: result": "/results/{result}",
    "page: hosts": "/hosts",
}


def fill(engine: Engine, n_results: int, n_advices: int, seed: int) -> float:
    """Fill an empty database; return the seconds it took to build the board."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA cache_size=-2000000"))
    several = crowd(n_results, seed)
    while rows := [msgspec.structs.asdict(one) for one in islice(several, BATCH)]:
        with engine.begin() as connection:
            connection.execute(insert(tables.result), rows)
    with engine.begin() as connection:
        for _ in range(n_advices // 100):
            connection.execute(insert(tables.advice), [_advice() for _ in range(100)])
    began = time.perf_counter()
    with locked(engine) as connection:
        board.rebuild(connection)
    spent = time.perf_counter() - began
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.execute(text("ANALYZE"))  # as its autovacuum does; nothing does it for SQLite
    return spent


def _advice() -> dict[str, Any]:
    """Return an advice of typical size; its content does not matter here."""
    key = secrets.token_hex(32)
    return {
        "id": secrets.token_urlsafe(16),
        "request_key": key,
        "key": key,
        "state": "ready",
        "repo": "somebody/a-GGUF",
        "revision": "0" * 40,
        "request": {},
        "body": {"configs": [{"text": secrets.token_hex(4_000)} for _ in range(8)]},
        "attempts": 1,
        "delete_key_hash": key,
        "created_at": NEWEST,
        "updated_at": NEWEST,
    }


def ask(client: httpx.Client, engine: Engine, path: str) -> tuple[float, int]:
    """Return the median of milliseconds, and the bytes of the answer."""
    spent, reply = [], None
    for _ in range(REPEATS):
        with writing(engine) as connection:
            count_change(connection)
        began = time.perf_counter()
        reply = client.get(path)
        spent.append(1000 * (time.perf_counter() - began))
    assert reply is not None
    assert reply.status_code == 200, (path, reply.status_code, reply.text[:300])
    return statistics.median(spent), len(reply.content)


def far_pages(client: httpx.Client) -> list[float]:
    """Return the milliseconds of each page when following the board from its first one."""
    spent, cursor = [], None
    for _ in range(PAGES):
        began = time.perf_counter()
        reply = client.get("/v1/leaderboard", params={"cursor": cursor} if cursor else {}).json()
        spent.append(1000 * (time.perf_counter() - began))
        cursor = reply["next"]
    return spent


@contextmanager
def databases(folder: str) -> Iterator[list[str]]:
    """Yield the URLs of empty databases of both kinds."""
    with postgres_server() as socket:
        name = f"bench_{uuid4().hex}"
        with psycopg.connect(host=socket, user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        yield [f"sqlite:///{folder}/advisor.db", f"postgresql://postgres@/{name}?host={socket}"]


def filled(url: str, args: argparse.Namespace) -> None:
    """Fill the empty database at `url`, and say how large the board is."""
    engine = make_engine(url)
    migrate(engine)
    engine.dispose()
    made = fill(engine, args.results, args.advices, args.seed)
    print(f"filled with {args.results:,} results, {args.advices:,} advices; the board was made in {made:.0f} s")
    engine.dispose()


def measure(url: str, valkey: EmbeddedValkey) -> None:
    """Ask one database everything, and print how long it took."""
    engine = make_engine(url)
    with engine.connect() as connection:
        several = (tables.result, tables.advice, board_tables.board)
        counted = {one.name: connection.scalar(select(func.count()).select_from(one)) for one in several}
    print(f"\n{engine.dialect.name}: " + ", ".join(f"{n:,} rows of {name}" for name, n in counted.items()))
    settings = Settings(
        database_url=url, redis_url=valkey.url, hf_endpoint="http://127.0.0.1:1", requests_per_minute=10**6
    )
    with service(settings) as client:
        names = _names(client)
        for what, path in QUESTIONS.items():
            ms, n_bytes = ask(client, engine, path.format(**names))
            print(f"  {what:<30}{ms:>8.1f} ms{n_bytes / 1024:>9.1f} KB", flush=True)
        pages = far_pages(client)
        near, far = statistics.median(pages[:10]), statistics.median(pages[-10:])
        print(f"  pages 1 to 10 {near:.1f} ms, pages {PAGES - 9} to {PAGES} {far:.1f} ms")
    print(f"  adding a result {_added(engine):.1f} ms")
    engine.dispose()


def _added(engine: Engine) -> float:
    """Return the median milliseconds of adding a result in a transaction that updates the board."""
    spent = []
    for one in crowd(REPEATS, secrets.randbelow(1 << 30), 50):
        began = time.perf_counter()
        with writing(engine) as connection:
            results.insert_in(connection, msgspec.structs.replace(one, id=secrets.token_urlsafe(16)), "")
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent)


def _names(client: httpx.Client) -> dict[str, str]:
    """The most common model, rig and result, which make for slow pages."""
    rows = client.get("/v1/results?limit=200").json()["results"]
    models, rigs = ([one[part]["slug"] for one in rows] for part in ("model", "rig"))
    common = {"model": max(models, key=models.count), "rig": max(rigs, key=rigs.count)}
    return {**common, "result": next(one["id"] for one in rows if one["model"]["slug"] == common["model"])}


def main() -> None:
    """Print the costs on both databases, or on one that was filled before."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=int, default=200_000)
    parser.add_argument("--advices", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--filled", metavar="URL", help="of a database that was filled before: nothing is added")
    args = parser.parse_args()
    print(stamp())
    print(f"median of {REPEATS} requests over HTTP to the app on this machine, one at a time")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        urls = [args.filled] if args.filled else stack.enter_context(databases(folder))
        valkey = EmbeddedValkey(Path(folder) / "valkey")
        valkey.start()
        stack.callback(valkey.close)
        for url in urls:
            if not args.filled:
                filled(url, args)
            measure(url, valkey)


if __name__ == "__main__":
    main()
