"""What reading headers costs, next to the readers of others: `python -m bench.headers [--repeats 5]`.

A local Hub, in a process of its own, waits 40 ms before each reply and sends 50 MB/s, all replies together. Our reader
and the plain one start with connections open and the listing known. `@huggingface/gguf` is installed by npm into a
temporary folder, and left out where there is no node; it has no form for a whole repo, so that its variants are read
one after the other, the shards of each in parallel; its first run opens its connections, and the median is shown.
"plain" is what a script does: 2 MiB at a time, one file after the other. Requests and bytes are as the Hub counts them,
each hop of a redirect for itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.stamp import stamp
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import Header, merge_shards
from service.engine.gguf.parser import MAX_HEADER_BYTES, parse_header
from service.engine.gguf.window import NeedMore
from service.hub.client import Hub
from service.hub.listing import RepoListing, Variant
from service.hub.references import parse_repo_reference
from tests.local_hub import Blob, Distance, LocalHub, Repo
from tests.models import build_header, gguf_bytes, gguf_files, shard_name

DELAY, LINE = 0.040, 50e6
STEP = 2 << 20
NPM_PACKAGE = "@huggingface/gguf@0.4.6"
_MIXES = ("q8_0", "q6_K", "q5_K", "q4_K", "q3_K", "q2_K", "iq4_xs", "iq4_nl", "iq3_s", "iq2_s")
_WARM = "bench/warm-GGUF"


class Cost(NamedTuple):
    """Seconds of one reading, and what the Hub saw of it."""

    seconds: float
    requests: int
    n_bytes: int


class Case(NamedTuple):
    """A repo of the local Hub, and the variants of it that are read (None: all)."""

    name: str
    repo: str
    variant: str | None = None


CASES = (
    Case("one small file", "bench/small-GGUF"),
    Case("one file, 152k tokens", "Qwen/Qwen3-0.6B-GGUF", "Q8_0"),
    Case("DeepSeek-R1, 9 shards", "ubergarm/DeepSeek-R1-0528-GGUF", "IQ4_KS_R4"),
    Case("20 variants x 5 shards", "bench/twenty-GGUF"),
)


# --- the Hub, in a process of its own


def _small() -> dict[str, Blob]:
    head = gguf_bytes("Qwen3-0.6B", "q8_0", small=True)
    return {"small-Q8_0.gguf": Blob(head, len(head) + (1 << 30))}


def _twenty() -> dict[str, Blob]:
    """Twenty mixes of one model in five shards each."""
    mixes = [(f"{mix.upper()}{part}", mix if not part else f"ffn_down_exps=q8_0,*={mix}") for mix in _MIXES
             for part in ("", "_L")]  # fmt: skip
    return {
        f"{name}/{shard_name(f'Qwen3-235B-A22B-{name}.gguf', number, 5)}": Blob(f.head, len(f.head) + f.n_data)
        for name, mix in mixes
        for number, f in enumerate(gguf_files("Qwen3-235B-A22B", mix, 5))
    }


def _serve(pipe: Connection) -> None:
    """Run the Hub: answer `cost` with requests and bytes since the last `reset`, until the pipe closes."""
    repos = {"bench/small-GGUF": Repo(_small), _WARM: Repo(_small), "bench/twenty-GGUF": Repo(cache(_twenty))}
    with LocalHub(repos, distance=Distance(DELAY, LINE)) as hub:
        for case in CASES:
            hub.state.files(case.repo)
        pipe.send(hub.endpoint)
        while (asked := pipe.recv()) is not None:
            pipe.send((len(hub.requests), hub.n_bytes))
            if asked == "reset":
                hub.reset()


class FarHub:
    """The Hub's endpoint and the requests it got."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.endpoint: str = pipe.recv()

    def timed(self, read: Callable[[], object]) -> Cost:
        """Return what `read` cost."""
        self._ask("reset")
        started = time.perf_counter()
        read()
        seconds = time.perf_counter() - started
        time.sleep(2 * DELAY)  # what a reader gave up is still being sent, and counted
        return Cost(seconds, *self._ask("cost"))

    def _ask(self, what: str) -> tuple[int, int]:
        self._pipe.send(what)
        requests, n_bytes = self._pipe.recv()
        return requests, n_bytes


@contextmanager
def far_hub() -> Iterator[FarHub]:
    """Run the Hub for the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield FarHub(ours)
    finally:
        ours.send(None)
        process.join()


# --- the readers


@contextmanager
def our_reader(hub: FarHub, case: Case) -> Iterator[Callable[[], list[Header]]]:
    """Ours: a fresh Hub client that knows only the listing, with open connections."""
    client = Hub(hub.endpoint)
    listing = _listed(client, case)
    warm = client.list_repo(parse_repo_reference(_WARM))
    list(client.read_headers(warm, warm.variants))
    try:
        yield lambda: [h for h in client.read_headers(listing, listing.variants) if isinstance(h, Header)]
    finally:
        client.close()


@contextmanager
def plain_reader(hub: FarHub, case: Case) -> Iterator[Callable[[], list[Header]]]:
    """A simple script's: one file after another, 2 MiB at a time, each time through the redirect."""
    with httpx.Client(base_url=hub.endpoint, follow_redirects=True, trust_env=False) as client:
        listing = _listed_once(hub, case)
        client.get(_address(_listed_once(hub, Case("", _WARM)), "small-Q8_0.gguf"), headers={"range": "bytes=0-9"})
        yield lambda: [
            merge_shards([_plain(client, _address(listing, f.path), f.n_bytes) for f in v.files])
            for v in listing.variants
        ]


def _plain(client: httpx.Client, address: str, size: int | None) -> Header:
    data = bytearray()
    while len(data) < MAX_HEADER_BYTES:
        reply = client.get(address, headers={"range": f"bytes={len(data)}-{len(data) + STEP - 1}"})
        data += reply.raise_for_status().content
        try:
            return parse_header(data, size)
        except NeedMore:
            continue
    raise ValueError("no header in 64 MiB")


def exactly(hub: FarHub, case: Case) -> Cost:
    """The floor for one file: a redirect and one request for exactly its header, on open connections."""
    with our_reader(hub, case) as read:
        n_bytes = read()[0].n_bytes
    listing = _listed_once(hub, case)
    with httpx.Client(base_url=hub.endpoint, follow_redirects=True, trust_env=False) as client:
        client.get(_address(_listed_once(hub, Case("", _WARM)), "small-Q8_0.gguf"), headers={"range": "bytes=0-9"})
        address = _address(listing, listing.variants[0].files[0].path)
        return hub.timed(lambda: client.get(address, headers={"range": f"bytes=0-{n_bytes - 1}"}).content)


_NODE = """
import { ggufAllShards } from "@huggingface/gguf";
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const urls = JSON.parse(line);
  const started = performance.now();
  let tensors = 0;
  for (const url of urls) {
    const { shards } = await ggufAllShards(url);
    tensors += shards.reduce((n, shard) => n + shard.tensorInfos.length, 0);
  }
  console.log(JSON.stringify({ seconds: (performance.now() - started) / 1000, tensors }));
}
"""


@contextmanager
def node_peer() -> Iterator[Callable[[list[str]], dict[str, float]] | None]:
    """`@huggingface/gguf` in a node process that stays open; None without node or npm."""
    if not (shutil.which("node") and shutil.which("npm")):
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, NPM_PACKAGE], check=True, cwd=folder)
        program = Path(folder) / "read.mjs"
        program.write_text(_NODE)
        with subprocess.Popen(["node", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
            assert node.stdin is not None
            assert node.stdout is not None

            def read(urls: list[str]) -> dict[str, float]:
                node.stdin.write(json.dumps(urls) + "\n")  # type: ignore[union-attr]
                node.stdin.flush()  # type: ignore[union-attr]
                found: dict[str, float] = json.loads(node.stdout.readline())  # type: ignore[union-attr]
                return found

            yield read
            node.stdin.close()


def _listed(client: Hub, case: Case) -> RepoListing:
    listing = client.list_repo(parse_repo_reference(case.repo))
    wanted: tuple[Variant, ...] = tuple(v for v in listing.variants if case.variant in (None, v.name))
    return RepoListing(listing.repo, listing.revision, wanted)


def _listed_once(hub: FarHub, case: Case) -> RepoListing:
    client = Hub(hub.endpoint)
    try:
        return _listed(client, case)
    finally:
        client.close()


def _address(listing: RepoListing, path: str) -> str:
    return f"/{listing.repo}/resolve/{listing.revision}/{path}"


# --- the table


def middle(costs: list[Cost]) -> Cost:
    """Return the run with the median time."""
    return sorted(costs)[len(costs) // 2]


def show(name: str, cost: Cost, note: str = "") -> None:
    """Print one row."""
    print(f"  {name:<22}{cost.seconds * 1000:>9.0f}{cost.requests:>10}{cost.n_bytes / 1e6:>10.2f}  {note}".rstrip())


def our_cost(hub: FarHub, case: Case, repeats: int) -> tuple[Cost, int]:
    """Return our median run, and the number of tensors it found."""
    costs, tensors = [], 0
    for _ in range(repeats):
        with our_reader(hub, case) as read:
            found: list[Header] = []
            costs.append(hub.timed(lambda: found.extend(read())))  # noqa: B023 (called at once)
            tensors = sum(len(header.tensors) for header in found)
    return middle(costs), tensors


def compare(hub: FarHub, case: Case, peer: Callable[[list[str]], dict[str, float]] | None, repeats: int) -> None:
    """Print what each reader took in one case."""
    print(f"{case.name}\n  {'reader':<22}{'ms':>9}{'requests':>10}{'MB':>10}")
    listing = _listed_once(hub, case)
    ours, tensors = our_cost(hub, case, repeats)
    show("ours", ours)
    if sum(len(v.files) for v in listing.variants) == 1:
        floor = middle([exactly(hub, case) for _ in range(repeats)])
        show("redirect + exact range", floor, f"ours takes {ours.seconds / floor.seconds:.2f} x")
    if peer:
        urls = [hub.endpoint + _address(listing, v.files[0].path) for v in listing.variants]
        taken = []
        for _ in range(repeats):
            found: dict[str, float] = {}
            cost = hub.timed(lambda: found.update(peer(urls)))  # noqa: B023 (called at once)
            assert found["tensors"] == tensors, (found, tensors)
            taken.append(cost._replace(seconds=found["seconds"]))
        show(NPM_PACKAGE, middle(taken), _against(ours, middle(taken)))
    with plain_reader(hub, case) as read:
        plain = middle([hub.timed(read) for _ in range(min(repeats, 3))])
    show("plain, 2 MiB steps", plain, _against(ours, plain))


def _against(ours: Cost, other: Cost) -> str:
    return f"ours: 1/{other.seconds / ours.seconds:.1f} of its time, 1/{other.n_bytes / ours.n_bytes:.1f} of its bytes"


def parsing(repeats: int) -> None:
    """Print the CPU time of parsing a header of 150k tokens and 150k merges."""
    words = [f"a token of some length {i:07d}" for i in range(150_000)]
    arrays = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": words}
    tensors = build_header("Qwen3-0.6B", "q8_0").tensors
    head = gguf_file.header_bytes({"general.architecture": "llama", **arrays}, tensors)
    taken = []
    for _ in range(max(9, repeats)):
        started = time.process_time()
        parse_header(head)
        taken.append((time.process_time() - started) * 1000)
    print(f"parsing {len(head) / 1e6:.1f} MB, 150k tokens and 150k merges: {statistics.median(taken):.0f} ms of CPU")


def main() -> None:
    """Print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(stamp())
    print(f"{DELAY * 1000:.0f} ms a request, {LINE / 1e6:.0f} MB/s; median of {repeats}")
    with far_hub() as hub, node_peer() as peer:
        if peer is None:
            print(f"no node and npm here: {NPM_PACKAGE} is left out")
        for case in CASES:
            compare(hub, case, peer, repeats)
    parsing(repeats)


if __name__ == "__main__":
    main()
