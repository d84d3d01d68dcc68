"""Headers kept on this disk: by content, across restarts, within a bound, whatever else is in the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service.engine.gguf.header import ArraySummary, Header, Tensor
from service.hub.cache import FileCache
from service.hub.client import Hub
from service.hub.references import parse_repo_reference
from tests.local_hub import LocalHub

QWEN = "Qwen/Qwen3-0.6B-GGUF"
HEADER = Header(
    {"general.architecture": "qwen3", "a": [1, 2, 3], "b": [1.5], "tokens": ArraySummary(151_936), "c": True, "d": 0.5},
    (Tensor("blk.0.attn_q.weight", "q4_K", (4096, 4096), 0, 9_437_184),),
    4096,
)
KEYS = [f"{number:064x}" for number in range(40)]
MIB = 1 << 20


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_header_is_read_as_it_was_put_also_by_the_next_process(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, MIB)
    assert cache.get(KEYS[0]) is None
    cache.put(KEYS[0], HEADER)
    cache.put(KEYS[0], HEADER)
    assert cache.get(KEYS[0]) == FileCache(tmp_path, MIB).get(KEYS[0]) == HEADER
    assert len(kept(tmp_path)) == 1


def test_what_cannot_be_read_is_put_again(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, MIB)
    for damaged in (b"", b"\x80", b"not msgpack"):
        cache.put(KEYS[0], HEADER)
        kept(tmp_path)[0].write_bytes(damaged)
        assert cache.get(KEYS[0]) is None
    cache.put(KEYS[0], HEADER)
    assert cache.get(KEYS[0]) == HEADER


def test_the_least_used_go_when_there_is_no_room(tmp_path: Path) -> None:
    large = Header({"chat_template": "x" * 100_000}, (), 100_000)
    cache = FileCache(tmp_path, MIB)
    for number, key in enumerate(KEYS):
        cache.put(key, large)
        for path in kept(tmp_path):
            if path.name == key:
                os.utime(path, (number, number))
        assert cache.get(KEYS[0]) is not None, "it was asked for every time"
    sizes = [path.stat().st_size for path in kept(tmp_path)]
    assert MIB * 3 // 4 < sum(sizes) <= MIB + MIB // 16 + 100_100
    assert cache.get(KEYS[1]) is None
    assert cache.get(KEYS[-1]) is not None


def test_writers_of_one_header_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: FileCache(tmp_path, MIB).put(KEYS[0], HEADER), range(24)))
    assert FileCache(tmp_path, MIB).get(KEYS[0]) == HEADER
    assert len(kept(tmp_path)) == 1


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nobody(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("in the way")
    cache = FileCache(taken, MIB)
    cache.put(KEYS[0], HEADER)
    assert cache.get(KEYS[0]) is None


def test_the_second_time_a_repo_costs_its_listing_only(
    local_hub: LocalHub, connect: Callable[..., Hub], tmp_path: Path
) -> None:
    found = []
    for _ in range(2):
        local_hub.reset()
        hub = connect(cache=FileCache(tmp_path, 64 * MIB))
        listing = hub.list_repo(parse_repo_reference(QWEN))
        found.append(list(hub.read_headers(listing, listing.variants)))
    assert found[0] == found[1]
    assert [r.path.partition("?")[0] for r in local_hub.requests] == [f"/api/models/{QWEN}"]
