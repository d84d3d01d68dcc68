"""A process reads a few repos of the Hub at once; what it has read before takes no slot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from service.hub.cache import FileCache
from service.hub.client import Hub
from service.hub.errors import HubBusy
from service.hub.headers import READS, ReadSlot, ReadSlots
from service.hub.references import parse_repo_reference
from tests.local_hub import LocalHub
from tests.waiting import PATIENCE

REPO = parse_repo_reference("local/gemma-3-12b-it-GGUF")


def test_a_header_that_is_kept_is_read_while_all_slots_are_taken(
    local_hub: LocalHub, connect: Callable[..., Hub], tmp_path: Path
) -> None:
    hub = connect(cache=FileCache(tmp_path, 1 << 26))
    hub._slots = slots = ReadSlots(wait_seconds=0.05)
    listing = hub.list_repo(REPO)
    first = hub.read_header(listing, listing.variants[0])
    for _ in range(READS):
        slots.take()
    asked = len(local_hub.requests)
    assert all(hub.read_header(listing, listing.variants[0]) == first for _ in range(20))
    assert len(local_hub.requests) == asked
    with pytest.raises(HubBusy, match="ask again") as refused:
        hub.list_repo(REPO)
    assert refused.value.retry_after > 0


def test_who_comes_when_all_slots_are_taken_waits_for_one() -> None:
    slots, done = ReadSlots(1), threading.Event()
    slots.take()

    def read() -> None:
        with ReadSlot(slots) as slot:
            slot.take()
            slot.take()
            done.set()

    waiting = threading.Thread(target=read)
    waiting.start()
    assert not done.wait(0.05)
    slots.give_back()
    waiting.join(PATIENCE)
    assert done.is_set()
    slots.take()


def test_a_slot_that_was_never_needed_is_not_given_back() -> None:
    slots = ReadSlots(1, wait_seconds=0.01)
    slots.take()
    with ReadSlot(slots):
        pass
    with pytest.raises(HubBusy):
        slots.take()
