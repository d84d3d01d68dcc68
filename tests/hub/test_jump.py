"""Variants of one repo: the first is read in full, of the others what differs; and who may know what was not read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace as with_front

import pytest
from msgspec.structs import replace

from service.engine.errors import InvalidHeader
from service.engine.gguf.header import Header
from service.hub.client import Hub
from service.hub.listing import RepoListing
from service.hub.references import parse_repo_reference
from tests.hub.conftest import Memory
from tests.local_hub import Blob, LocalHub, Repo
from tests.models import gguf_files

Connect = Callable[..., Hub]
QWEN, DAMAGED, COPY = "Qwen/Qwen3-0.6B-GGUF", "local/damaged-GGUF", "local/copy-GGUF"


def _damaged() -> dict[str, Blob]:
    """Two good variants; one whose vocabulary ends otherwise; one where a length in the middle is a lie."""
    q8, q4, q6 = (Blob(f.head, len(f.head) + f.n_data) for f in (_file("q8_0"), _file("q4_K"), _file("q6_K")))
    end, middle = bytearray(q4.front), bytearray(q6.front)
    place = end.index(b"tok0151935")
    end[place : place + 10] = b"tok0000000"
    place = middle.index(b"tok0080000")
    middle[place - 8 : place] = struct.pack("<Q", 1000)
    return {
        "m-A.gguf": q8,
        "m-B.gguf": q4,
        "m-C-end.gguf": with_front(q4, front=bytes(end)),
        "m-D-middle.gguf": with_front(q6, front=bytes(middle)),
    }


def _file(mix: str):  # type: ignore[no-untyped-def]
    return gguf_files("Qwen3-0.6B", mix)[0]


@pytest.fixture(scope="module")
def running_hub() -> Iterator[LocalHub]:
    with LocalHub({DAMAGED: Repo(_damaged), COPY: Repo(_damaged)}) as hub:
        yield hub


def listed(hub: Hub, repo: str) -> RepoListing:
    return hub.list_repo(parse_repo_reference(repo))


def read(hub: Hub, repo: str, *, in_full: bool = False) -> dict[str, Header | InvalidHeader]:
    listing = listed(hub, repo)
    return dict(zip(listing.names, hub.read_headers(listing, listing.variants, in_full), strict=True))


def test_one_variant_is_read_in_full_and_the_others_by_jumps(connect: Connect) -> None:
    hub = connect()
    listing = listed(hub, QWEN)
    headers = hub.read_headers(listing, listing.variants)
    assert [h.by_jump for h in headers if isinstance(h, Header)] == [False, True, True]


def test_what_is_read_in_full_comes_from_no_other_variant(local_hub: LocalHub, connect: Connect) -> None:
    memory = Memory()
    read(connect(cache=memory), QWEN)
    for name, header in read(connect(cache=memory), QWEN, in_full=True).items():
        assert header == local_hub.header(QWEN, name)


def test_a_header_read_by_a_jump_is_known_in_its_own_repo_only(local_hub: LocalHub, connect: Connect) -> None:
    memory = Memory()
    first = read(connect(cache=memory), DAMAGED)
    local_hub.reset()
    assert _texts(read(connect(cache=memory), DAMAGED)) == _texts(first)
    assert [r.path.partition("?")[0] for r in local_hub.requests] == [f"/api/models/{DAMAGED}"]
    elsewhere = read(connect(cache=memory), COPY)
    assert isinstance(elsewhere["m-A"], Header)
    assert not elsewhere["m-A"].by_jump
    assert any(f"{COPY}/resolve" in r.path for r in local_hub.requests)


def test_what_was_read_in_full_is_known_in_every_repo(local_hub: LocalHub, connect: Connect) -> None:
    memory = Memory()
    read(connect(cache=memory), DAMAGED, in_full=True)
    local_hub.reset()
    listing = listed(hub := connect(cache=memory), COPY)
    assert hub.read_header(listing, listing.variants[0]).tensors
    assert len(local_hub.requests) == 1


def test_a_vocabulary_that_ends_otherwise_is_read_in_full(connect: Connect) -> None:
    headers = read(connect(), DAMAGED)
    assert [h.by_jump for h in headers.values() if isinstance(h, Header)].count(False) == 2
    assert isinstance(headers["m-C-end"], Header)
    assert not headers["m-C-end"].by_jump


def test_anyone_who_fools_a_jump_fools_his_own_repo_only(local_hub: LocalHub, connect: Connect) -> None:
    """A length in the middle that lies is not seen. Read in full, the file is damaged: that is what hosts hear of."""
    memory = Memory()
    by_jump, in_full = read(connect(cache=memory), DAMAGED), read(connect(cache=memory), DAMAGED, in_full=True)
    assert isinstance(by_jump["m-D-middle"], Header)
    assert by_jump["m-D-middle"].by_jump
    assert isinstance(in_full["m-D-middle"], InvalidHeader)
    sha256 = next(v.files[0].sha256 for v in listed(connect(), DAMAGED).variants if v.name == "m-D-middle")
    assert sha256 not in memory


def _texts(headers: dict[str, Header | InvalidHeader]) -> dict[str, str]:
    return {name: str(replace(h, by_jump=False) if isinstance(h, Header) else h) for name, h in headers.items()}
