"""A local Hub for all tests of this folder, with a tiny repo besides the usual ones, and clients that never sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import Header
from service.hub.client import Hub
from tests.local_hub import Blob, LocalHub, Repo
from tests.models import build_header, gguf_bytes, shard_name

TINY, TINY_SHARDS = "local/tiny-GGUF", "local/tiny-shards-GGUF"
TINY_FILE = "tiny-Q8_0.gguf"


class Memory(dict[str, Header]):
    """A header cache in memory."""

    def put(self, sha256: str, header: Header) -> None:
        self[sha256] = header


def _tiny() -> dict[str, Blob]:
    head = gguf_bytes("Qwen3-0.6B", "q8_0", small=True)
    return {TINY_FILE: Blob(head, len(head) + gguf_file.data_bytes(build_header("Qwen3-0.6B", "q8_0").tensors))}


def _tiny_shards() -> dict[str, Blob]:
    """Three shards, of which the second says that it is the third."""
    files = {}
    for number, stated in enumerate((0, 2, 1)):
        split: dict[str, gguf_file.Value] = {"split.no": gguf_file.U16(stated), "split.count": gguf_file.U16(3)}
        head = gguf_file.header_bytes({"general.architecture": "qwen3", **split}, ())
        files[shard_name("tiny-Q8_0.gguf", number, 3)] = Blob(head, len(head))
    return files


@pytest.fixture(scope="session")
def running_hub() -> Iterator[LocalHub]:
    with LocalHub({TINY: Repo(_tiny), TINY_SHARDS: Repo(_tiny_shards)}) as hub:
        yield hub


@pytest.fixture
def local_hub(running_hub: LocalHub) -> Iterator[LocalHub]:
    running_hub.reset()
    yield running_hub
    running_hub.reset()


@pytest.fixture
def slept() -> list[float]:
    """The waits that a client would have made."""
    return []


@pytest.fixture
def connect(local_hub: LocalHub, slept: list[float]) -> Iterator[Callable[..., Hub]]:
    """Make clients of the local Hub; they are closed at the end."""
    made: list[Hub] = []

    def make(token: str | None = None, **options: Any) -> Hub:
        made.append(Hub(local_hub.endpoint, token, sleep=slept.append, **options))
        return made[-1]

    yield make
    for hub in made:
        hub.close()
