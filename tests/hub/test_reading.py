"""Headers read through two origins: what it costs, what is kept, and that nobody but the Hub sees the token."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from service.engine.errors import AdvisorError, InvalidHeader, InvalidInput, NotGguf, TruncatedHeader
from service.engine.gguf.header import Header
from service.engine.model import build_model
from service.flows.advice.reading import read_models
from service.hub.client import Hub
from service.hub.errors import RepoGated, RepoTooLarge
from service.hub.headers import FIRST_RANGE
from service.hub.listing import ListingLimits, RepoListing
from service.hub.local import local_variants
from service.hub.references import parse_repo_reference
from tests.hub.conftest import TINY, TINY_FILE, TINY_SHARDS, Memory
from tests.local_hub import MEMBER_TOKEN, REPOS, TOKEN, LocalHub
from tests.sampling import some_of

Connect = Callable[..., Hub]
MIB = 1 << 20
R1 = "ubergarm/DeepSeek-R1-0528-GGUF"
READABLE = tuple(REPOS)[:8]


def listed(hub: Hub, repo: str) -> RepoListing:
    return hub.list_repo(parse_repo_reference(repo))


def read(hub: Hub, repo: str, number: int = 0) -> Header:
    listing = listed(hub, repo)
    return hub.read_header(listing, listing.variants[number])


@pytest.mark.parametrize("repo", some_of(READABLE, 3))
def test_headers_of_published_shapes_are_read_whole_and_make_models(
    local_hub: LocalHub, connect: Connect, repo: str
) -> None:
    hub = connect()
    listing = listed(hub, repo)
    for variant in listing.variants:
        header = hub.read_header(listing, variant)
        assert replace(header, by_jump=False) == local_hub.header(repo, variant.name)
        assert build_model(header).n_bytes <= (variant.n_bytes or 0)


@pytest.mark.parametrize("repo", READABLE)
def test_a_whole_repo_costs_one_tokenizer_and_little_more_for_each_file(
    local_hub: LocalHub, connect: Connect, repo: str
) -> None:
    hub = connect()
    listing = listed(hub, repo)
    headers = list(hub.read_headers(listing, listing.variants))
    n_files, n_variants = sum(len(v.files) for v in listing.variants), len(listing.variants)
    assert hub.cost.requests == len(local_hub.requests) - 1
    assert hub.cost.requests <= 2 * n_files + 3 * n_variants
    largest = max(h.n_bytes for h in headers if isinstance(h, Header))
    assert hub.cost.n_bytes <= largest + n_files * 64 * 1024 + n_variants * 128 * 1024 + MIB // 4


def test_later_shards_take_one_range_each(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect()
    listing = listed(hub, R1)
    hub.read_header(listing, listing.variants[0])
    local_hub.reset()
    hub.read_header(listing, listing.variants[-1])
    assert len(local_hub.requests) == 2 * len(listing.variants[-1].files) + 3


def test_shards_after_the_first_begin_with_a_small_range(local_hub: LocalHub, connect: Connect) -> None:
    read(connect(), R1)
    ranges = [r.range for r in local_hub.requests if r.origin == "cdn"]
    assert ranges.count("bytes=0-65535") == 2
    assert ranges.count(f"bytes=0-{FIRST_RANGE - 1}") == 1


def test_one_request_reads_a_header_and_ends_with_it(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect()
    header = read(hub, "Qwen/Qwen3-0.6B-GGUF")
    assert [r.origin for r in local_hub.requests] == ["api", "api", "cdn"]
    assert header.n_bytes <= hub.cost.n_bytes < header.n_bytes + 256 * 1024


def test_content_that_is_known_is_not_read_again(local_hub: LocalHub, connect: Connect) -> None:
    memory = Memory()
    first = read(connect(cache=memory), R1)
    local_hub.reset()
    assert read(connect(cache=memory), R1) == first
    assert len(local_hub.requests) == 1  # the listing


def test_the_signed_address_is_kept_for_the_next_range(
    local_hub: LocalHub, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.hub.headers.FIRST_RANGE", 1 << 20)
    read(connect(), "Qwen/Qwen3-0.6B-GGUF")
    assert [r.origin for r in local_hub.requests] == ["api", "api", *["cdn"] * 5]


def test_the_token_is_shown_to_the_hub_and_to_nobody_else(local_hub: LocalHub, connect: Connect) -> None:
    read(connect(TOKEN), R1)
    seen = {(r.origin, r.authorization) for r in local_hub.requests}
    assert seen == {("api", f"Bearer {TOKEN}"), ("cdn", None)}


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_gated_repo_says_what_to_do(connect: Connect, token: str | None) -> None:
    with pytest.raises(RepoGated, match=r"gated: accept its terms.*HF_TOKEN=hf_\.\.\. advisor advise local/gated"):
        read(connect(token), "local/gated-GGUF")


def test_a_gated_repo_is_read_for_its_members_and_for_all_where_the_operator_lists_it(
    local_hub: LocalHub, connect: Connect
) -> None:
    with pytest.raises(RepoGated):
        read(connect(MEMBER_TOKEN), "local/gated-GGUF")
    assert [r.path for r in local_hub.requests if "resolve" in r.path] == []
    assert read(connect(MEMBER_TOKEN, gated_repos=("Local/Gated-GGUF",)), "local/gated-GGUF").tensors
    assert read(connect(MEMBER_TOKEN, allow_private=True), "local/gated-GGUF").tensors


def test_a_file_that_is_no_gguf_is_named_as_such(connect: Connect) -> None:
    with pytest.raises(NotGguf, match="local/not-a-GGUF"):
        read(connect(), "local/not-a-GGUF")


def test_a_file_cut_off_in_its_header_or_its_weights_is_named_as_truncated(connect: Connect) -> None:
    hub = connect()
    for number in range(2):
        with pytest.raises(TruncatedHeader, match="local/truncated-GGUF"):
            read(hub, "local/truncated-GGUF", number)


def test_shards_that_contradict_each_other_are_refused(connect: Connect) -> None:
    with pytest.raises(InvalidHeader, match="mixed up"):
        read(connect(), TINY_SHARDS)


def test_a_header_over_the_limit_of_a_file_is_refused(connect: Connect) -> None:
    with pytest.raises(InvalidHeader, match="larger than 2 MiB"):
        read(connect(limits=ListingLimits(header_bytes=2 * MIB)), R1)


def test_headers_over_the_limit_of_a_repo_are_refused(connect: Connect) -> None:
    hub = connect(limits=ListingLimits(repo_header_bytes=8 * MIB))
    listing = listed(hub, R1)
    hub.read_header(listing, listing.variants[0])
    with pytest.raises(RepoTooLarge, match="8 MiB together: name a variant"):
        list(hub.read_headers(listing, listing.variants[1:2], in_full=True))
    assert hub.cost.n_bytes < 9 * MIB


def test_a_variant_that_cannot_be_read_leaves_nothing_to_the_garbage_collector(connect: Connect) -> None:
    """What reads in parallel had been ended by it, in any thread: in one that held the connections' lock for good."""
    hub = connect()
    listing = listed(hub, "local/many-shards-GGUF")
    gc.disable()
    try:
        with pytest.raises(InvalidHeader):
            read_models(hub, listing, listing.variants[:1])
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    finally:
        gc.enable()


def test_what_a_repo_may_cost_is_counted_again_after_a_while(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = connect(limits=ListingLimits(repo_header_bytes=3 * MIB))
    listing = listed(hub, TINY)

    def read_often() -> None:
        for _ in range(3 * MIB // 20_000):
            hub.read_header(listing, listing.variants[0])

    with pytest.raises(RepoTooLarge):
        read_often()
    later = time.monotonic() + 3600
    monkeypatch.setattr("service.hub.client.time", SimpleNamespace(monotonic=lambda: later))  # the clock of no other
    assert hub.read_header(listing, listing.variants[0]).tensors


def test_a_listing_of_local_files_is_not_read_from_the_hub(
    connect: Connect, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("models")
    (folder / "m-Q8_0.gguf").write_bytes(b"GGUF")
    listing = local_variants(folder)
    with pytest.raises(InvalidInput):
        connect().read_header(listing, listing.variants[0])


def test_reading_reports_only_our_own_errors(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect()
    listing = listed(hub, TINY)
    assert listing.variants[0].files[0].path == TINY_FILE
    local_hub.state.branches[TINY]["main"] = "f" * 40
    try:
        with pytest.raises(AdvisorError):
            hub.read_header(listing, listing.variants[0])
    finally:
        local_hub.state.branches[TINY]["main"] = listing.revision or ""
