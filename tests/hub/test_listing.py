from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Literal

import pytest

from service.engine.errors import AdvisorError, InvalidInput
from service.hub.client import Hub
from service.hub.errors import (
    HubRateLimited,
    HubReplyRefused,
    HubUnauthorised,
    HubUnavailable,
    RepoGated,
    RepoNotFound,
    RepoTooLarge,
    RepoWithoutGguf,
    RevisionNotFound,
)
from service.hub.listing import ListingLimits
from service.hub.references import RepoReference, parse_repo_reference
from service.hub.retry import seconds_asked
from tests.hub.conftest import TINY
from tests.local_hub import MEMBER_TOKEN, TOKEN, Fault, LocalHub, commit_of

Connect = Callable[..., Hub]
R1 = "ubergarm/DeepSeek-R1-0528-GGUF"


def ref(text: str) -> RepoReference:
    return parse_repo_reference(text)


def test_one_call_lists_variants_sizes_and_hashes_and_pins_the_commit(local_hub: LocalHub, connect: Connect) -> None:
    listing = connect().list_repo(ref(R1))
    assert len(local_hub.requests) == 1
    assert local_hub.requests[0].path == f"/api/models/{R1}?blobs=true"
    assert listing.repo == R1
    assert listing.revision == commit_of(R1)
    assert listing.names == ("IQ1_S_R4", "IQ2_KT", "IQ2_K_R4", "IQ3_KT", "IQ3_KS", "IQ3_K_R4", "IQ4_KS_R4")
    last = listing.variants[-1]
    assert len(last.files) == 9
    assert last.n_bytes is not None
    assert 360 < last.n_bytes / 2**30 < 370
    assert all(len(f.sha256 or "") == 64 for f in last.files)
    assert listing.base_models == ("deepseek-ai/DeepSeek-R1-0528",)


def test_files_that_are_no_variant_are_listed_apart(connect: Connect) -> None:
    listing = connect().list_repo(ref("local/gemma-3-12b-it-GGUF"))
    assert listing.names == ("Q4_K_M",)
    assert {o.kind for o in listing.other_files} == {"mmproj", "imatrix", "draft", "lora", "vocab", "other"}


def test_a_misspelt_repo_is_answered_with_the_nearest_by_one_search(local_hub: LocalHub, connect: Connect) -> None:
    with pytest.raises(RepoNotFound) as caught:
        connect().list_repo(ref("unsloth/DeepSeek-R1-0528"))
    assert R1 in caught.value.choices
    assert caught.value.detail.index(f"finds {R1}") < caught.value.detail.index("if you have access")
    assert [request.path.partition("?")[0] for request in local_hub.requests].count("/api/models") == 1


def test_a_commit_and_a_branch_lead_to_the_same_listing(connect: Connect) -> None:
    hub = connect()
    by_branch = hub.list_repo(ref(f"{TINY}@main"))
    assert hub.list_repo(ref(f"{TINY}@{by_branch.revision}")) == by_branch


def test_a_revision_that_is_not_there_is_named(connect: Connect) -> None:
    with pytest.raises(RevisionNotFound, match="'v9'") as caught:
        connect().list_repo(ref(f"https://hf.co/{TINY}/tree/v9"))
    assert caught.value.field == "revision"


@pytest.mark.parametrize("token", [None, TOKEN])
def test_an_unknown_repo_is_answered_as_such(connect: Connect, token: str | None) -> None:
    with pytest.raises(RepoNotFound, match="nobody/nothing") as caught:
        connect(token).list_repo(ref("nobody/nothing"))
    assert caught.value.field == "repo"


def test_a_private_repo_is_unknown_even_to_a_service_whose_token_sees_it(connect: Connect) -> None:
    answers = []
    for token in (None, TOKEN, MEMBER_TOKEN):
        with pytest.raises(RepoNotFound) as caught:
            connect(token).list_repo(ref("local/private-GGUF"))
        answers.append(caught.value.detail)
    assert len(set(answers)) == 1
    listing = connect(MEMBER_TOKEN, allow_private=True).list_repo(ref("local/private-GGUF"))
    assert len(listing.variants) == 3


def test_a_refused_token_is_the_operators_business(connect: Connect) -> None:
    with pytest.raises(HubUnauthorised, match="HF_TOKEN"):
        connect("hf_expired").list_repo(ref(TINY))


def test_a_gated_repo_can_be_listed_and_says_so(connect: Connect) -> None:
    assert connect().list_repo(ref("local/gated-GGUF")).gated


def test_a_listing_that_is_gated_itself_says_what_to_do(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("status", "api", TINY, status=403, headers={"x-error-code": "GatedRepo"}))
    with pytest.raises(RepoGated, match=r"accept its terms.*HF_TOKEN"):
        connect().list_repo(ref(TINY))


def test_a_repo_without_gguf_answers_with_repos_that_have_the_model(local_hub: LocalHub, connect: Connect) -> None:
    with pytest.raises(RepoWithoutGguf, match="no GGUF") as caught:
        connect().list_repo(ref("deepseek-ai/DeepSeek-R1-0528"))
    assert caught.value.choices == (R1,)
    assert len(local_hub.requests) == 2


def test_a_repo_without_gguf_of_an_unknown_model_is_answered_all_the_same(connect: Connect) -> None:
    with pytest.raises(RepoWithoutGguf, match="no repo with GGUF") as caught:
        connect().list_repo(ref("local/no-gguf-anywhere"))
    assert caught.value.choices == ()


def test_a_failing_search_does_not_hide_that_the_repo_has_no_gguf(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect()
    hub.search_gguf = lambda model: (_ for _ in ()).throw(HubUnavailable("down", retry_after=1))  # type: ignore[method-assign]
    with pytest.raises(RepoWithoutGguf):
        hub.list_repo(ref("deepseek-ai/DeepSeek-R1-0528"))


def test_a_repo_with_incomplete_sets_only_lists_the_complete_variant(connect: Connect) -> None:
    listing = connect().list_repo(ref("local/incomplete-GGUF"))
    assert listing.names == ("Q4_K_M",)
    assert sum(o.kind == "incomplete" for o in listing.other_files) == 2


def test_a_rate_limit_is_waited_for_when_it_is_short(local_hub: LocalHub, connect: Connect, slept: list[float]) -> None:
    local_hub.fail(Fault("status", "api", TINY, times=2, status=429, headers={"retry-after": "2"}))
    assert connect().list_repo(ref(TINY)).names == ("Q8_0",)
    assert slept == [2, 2]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"ratelimit": '"api";r=0;t=77'}, 77),
        ({}, 30),
        ({"retry-after": "9" * 400}, 3600),
    ],
)
def test_a_longer_rate_limit_is_handed_on(
    local_hub: LocalHub, connect: Connect, headers: dict[str, str], seconds: int
) -> None:
    local_hub.fail(Fault("status", "api", TINY, status=429, headers=headers))
    with pytest.raises(HubRateLimited) as caught:
        connect().list_repo(ref(TINY))
    assert caught.value.retry_after == seconds


def test_a_rate_limit_without_a_time_is_met_with_growing_pauses(
    local_hub: LocalHub, connect: Connect, slept: list[float]
) -> None:
    local_hub.fail(Fault("status", "api", TINY, status=429))
    with pytest.raises(HubRateLimited) as caught:
        connect().list_repo(ref(TINY))
    assert caught.value.retry_after == 30
    assert len(slept) == 2
    assert 0 < slept[0] < slept[1]


def test_a_failing_hub_is_asked_three_times(local_hub: LocalHub, connect: Connect, slept: list[float]) -> None:
    local_hub.fail(Fault("status", "api", TINY, status=500))
    with pytest.raises(HubUnavailable, match="500") as caught:
        connect().list_repo(ref(TINY))
    assert len(local_hub.requests) == 3
    assert len(slept) == 2
    assert caught.value.retry_after > 0


def test_a_hub_that_is_down_is_unavailable(slept: list[float]) -> None:
    with LocalHub() as gone:
        endpoint = gone.endpoint
    hub = Hub(endpoint, sleep=slept.append)
    with pytest.raises(HubUnavailable, match="does not answer"):
        hub.list_repo(ref(TINY))
    hub.close()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"<html>", b"[]", b"null", b"{}", b'{"id": 1}', b'{"id": "a/b", "sha": null, "siblings": []}',
        b'{"id": "a/b", "sha": "../../x", "siblings": []}',
        b'{"id": "a/b", "sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": 7}]}',
        b'{"id": "a/b", "sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "x.gguf", "size": -1}]}',
        b'{"id": "a/b", "sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "x.gguf", "lfs": {"size": 1}}]}',
    ],
)  # fmt: skip
def test_a_description_that_makes_no_sense_is_refused(local_hub: LocalHub, connect: Connect, content: bytes) -> None:
    local_hub.fail(Fault("body", "api", TINY, content=content))
    with pytest.raises(HubReplyRefused, match="cannot be read"):
        connect().list_repo(ref(TINY))


def test_a_repo_that_moved_is_known_by_its_new_name(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("redirect", "api", TINY, times=1, location=f"/api/models/{R1}?blobs=true"))
    assert connect().list_repo(ref(TINY)).repo == R1


def test_a_repo_with_too_many_files_is_refused(connect: Connect) -> None:
    with pytest.raises(RepoTooLarge, match="files"):
        connect(limits=ListingLimits(repo_files=10)).list_repo(ref(R1))


def test_names_that_the_hub_does_not_allow_are_never_asked_for(local_hub: LocalHub, connect: Connect) -> None:
    with pytest.raises(InvalidInput):
        connect().list_repo(RepoReference("..", "api"))
    with pytest.raises(InvalidInput):
        connect().list_repo(RepoReference("local", "tiny-GGUF", "../../x"))
    assert local_hub.requests == []


def test_a_search_finds_quantised_repos_of_a_model(connect: Connect) -> None:
    assert connect().search_gguf("Qwen/Qwen3-235B-A22B") == ("unsloth/Qwen3-235B-A22B-GGUF",)


def test_the_token_goes_with_the_listing_and_none_without_one(local_hub: LocalHub, connect: Connect) -> None:
    connect(TOKEN).list_repo(ref(TINY))
    connect().list_repo(ref(TINY))
    assert [r.authorization for r in local_hub.requests] == [f"Bearer {TOKEN}", None]


def test_every_error_of_the_hub_is_a_problem_with_a_name_of_its_own() -> None:
    errors = (
        RepoNotFound, RevisionNotFound, RepoGated, RepoWithoutGguf, RepoTooLarge, HubUnavailable, HubRateLimited,
        HubUnauthorised, HubReplyRefused,
    )  # fmt: skip
    assert len({e.problem for e in errors} | {AdvisorError.problem}) == len(errors) + 1


@pytest.mark.parametrize(
    ("status", "headers", "error", "said"),
    [
        (403, {"x-error-message": "Access to this resource is disabled."}, RepoNotFound, "has disabled"),
        (
            403,
            {"x-error-message": "Please enable access to public gated repositories in your fine-grained token"},
            HubUnauthorised,
            "fine-grained",
        ),
        (401, {"x-error-message": "Invalid credentials in Authorization header"}, HubUnauthorised, "renew HF_TOKEN"),
        (401, {"x-error-message": "Invalid username or password."}, RepoNotFound, "or it is private"),
        (403, {"x-error-code": "GatedRepo"}, RepoGated, "accept its terms"),
    ],
)
@pytest.mark.parametrize("at", ["api", "resolve"])
def test_a_refusal_means_the_same_for_a_listing_and_for_a_file(
    local_hub: LocalHub, connect: Connect, status: int, headers: dict[str, str], error: type[Exception], said: str,
    at: Literal["api", "resolve"],
) -> None:  # fmt: skip
    hub = connect()
    listing = hub.list_repo(ref(TINY))
    local_hub.fail(Fault("status", at, TINY, status=status, headers=headers))
    with pytest.raises(error, match=said):
        hub.list_repo(ref(TINY)) if at == "api" else hub.read_header(listing, listing.variants[0])


def test_a_limit_that_is_not_used_up_is_no_reason_to_wait_for_its_end() -> None:
    assert seconds_asked({"ratelimit": '"api";r=0;t=55'}) == 55
    assert seconds_asked({"ratelimit": '"api";r=489;t=192'}) is None
    assert seconds_asked({"retry-after": "7", "ratelimit": '"api";r=0;t=55'}) == 7
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 <= (seconds_asked({"retry-after": in_a_minute}) or 0) <= 60
