"""Downloads that the policy allows: resumed, bounded, from the Hub's own hosts, kept only with the right hash."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.engine.measured.classify import Failure
from service.wire.measuring.agent import RunDocument, RunFile
from tests.local_hub import Blob, Fault, LocalHub, Repo, commit_of
from tests.workers.agent.documents import DOCUMENT
from workers.agent import download as downloading
from workers.agent.download import MARK, download, touch
from workers.agent.policy import DownloadPolicy, ModelPolicy, Policy
from workers.agent.preflight import Declined
from workers.agent.state import State
from workers.agent.usage import UsageOfDay

REPO = "owner/tiny-GGUF"
CONTENTS = {"Q4/m-00001-of-00002.gguf": b"a" * 300_000, "Q4/m-00002-of-00002.gguf": b"b" * 200_000}
FIRST = "Q4/m-00001-of-00002.gguf"


@pytest.fixture(scope="module")
def running_hub() -> Iterator[LocalHub]:
    files = {path: Blob(content, len(content)) for path, content in CONTENTS.items()}
    with LocalHub({REPO: Repo(lambda: files)}) as hub:
        yield hub


@pytest.fixture
def hub(running_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    running_hub.reset()
    monkeypatch.setattr(downloading, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(downloading, "_SPARE_BYTES", 0)
    return running_hub


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    allowed = DownloadPolicy(repos=("owner/*",), max_gib=1, folder=str(tmp_path / "models" / "fetched"))
    return Policy(models=ModelPolicy(folders=(str(tmp_path / "models"),)), downloads=allowed)


@pytest.fixture
def document() -> RunDocument:
    files = tuple(
        RunFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for path, content in CONTENTS.items()
    )
    return replace(DOCUMENT, repo=REPO, revision=commit_of(REPO), files=files)


def go_on() -> str | None:
    return None


def usage_of(policy: Policy) -> UsageOfDay:
    state = State(Path(policy.downloads.folder or "/nowhere").parent.with_name("state"))
    state.make()
    return UsageOfDay(state)


def fetch(
    document: RunDocument, policy: Policy, hub: LocalHub, stop: Callable[[], str | None] = go_on
) -> tuple[Path, ...]:
    return download(document, policy, stop, usage_of(policy), hub.endpoint)


def refusal(document: RunDocument, policy: Policy, hub: LocalHub, stop: Callable[[], str | None] = go_on) -> Failure:
    with pytest.raises(Declined) as caught:
        fetch(document, policy, hub, stop)
    return caught.value.failure


def test_files_come_whole_into_one_folder(document: RunDocument, policy: Policy, hub: LocalHub) -> None:
    paths = fetch(document, policy, hub)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert len({path.parent for path in paths}) == 1
    assert not list(paths[0].parent.glob("*.part"))
    asked = len(hub.requests)
    assert fetch(document, policy, hub) == paths
    assert len(hub.requests) == asked
    assert all(request.authorization is None for request in hub.requests)


def test_what_was_broken_off_goes_on_where_it_was(document: RunDocument, policy: Policy, hub: LocalHub) -> None:
    hub.fail(Fault("cut", "cdn", path=FIRST, times=2))
    paths = fetch(document, policy, hub)
    assert paths[0].read_bytes() == CONTENTS[FIRST]
    starts = [request.range for request in hub.requests if request.origin == "cdn"][:3]
    assert starts == ["bytes=0-299999", "bytes=150000-299999", "bytes=225000-299999"]


def test_a_hub_that_stumbles_is_asked_again_and_given_up(document: RunDocument, policy: Policy, hub: LocalHub) -> None:
    hub.fail(Fault("status", "resolve", status=503, times=2))
    assert fetch(document, policy, hub)
    shutil.rmtree(policy.downloads.folder or "")
    hub.fail(Fault("status", "resolve", status=503))
    failure = refusal(document, policy, hub)
    assert (failure.kind, failure.transient) == ("model_missing", True)


def test_other_content_is_removed(document: RunDocument, policy: Policy, hub: LocalHub, tmp_path: Path) -> None:
    first, second = document.files
    failure = refusal(replace(document, files=(replace(first, sha256="0" * 64), second)), policy, hub)
    assert (failure.kind, failure.transient) == ("model_missing", False)
    assert not list((tmp_path / "models").rglob("*.gguf*"))


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", "resolve", status=404),
        Fault("status", "resolve", status=401),
        Fault("redirect", "resolve", location="https://evil.example/m.gguf"),
        Fault("redirect", "resolve", location="http://169.254.169.254/latest"),
        Fault("redirect", "resolve", location="file:///etc/passwd"),
        Fault("redirect", "resolve", location="http://\x00"),
        Fault("redirect", "resolve", location="/owner/tiny-GGUF/resolve/main/x"),
        Fault("content-range", "cdn", location="bytes 0-9/10"),
        Fault("content-range", "cdn", location="bytes 0-299999/99999999999"),
    ],
)
def test_what_is_not_the_file_is_refused(
    document: RunDocument, policy: Policy, hub: LocalHub, fault: Fault, tmp_path: Path
) -> None:
    hub.fail(Fault(fault.kind, fault.at, status=fault.status, location=fault.location))
    assert refusal(document, policy, hub).kind == "model_missing"


def test_no_redirect_leaves_the_hub_for_this_machine(
    document: RunDocument, policy: Policy, hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "is_loopback", lambda host: False)
    assert "not its own" in refusal(document, policy, hub).text


def test_what_the_policy_does_not_allow_is_not_asked_for(document: RunDocument, policy: Policy, hub: LocalHub) -> None:
    other = replace(policy, downloads=replace(policy.downloads, repos=("ubergarm/*",)))
    assert refusal(document, other, hub).kind == "refused_by_policy"
    nothing = replace(policy, downloads=replace(policy.downloads, repos=()))
    assert refusal(document, nothing, hub).kind == "refused_by_policy"
    small = replace(policy, downloads=replace(policy.downloads, max_gib=400_000 / 2**30))
    assert "more than the" in refusal(document, small, hub).text
    assert hub.requests == []


def test_a_full_disk_is_not_filled_further(
    document: RunDocument, policy: Policy, hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "_SPARE_BYTES", 1 << 60)
    assert "the disk lacks" in refusal(document, policy, hub).text
    assert hub.requests == []


def test_what_an_earlier_download_left_spoiled_is_fetched_again(
    document: RunDocument, policy: Policy, hub: LocalHub
) -> None:
    paths = fetch(document, policy, hub)
    paths[0].write_bytes(b"x" * 300_000)
    paths[1].rename(paths[1].with_name(paths[1].name + ".part"))
    paths[1].with_name(paths[1].name + ".part").write_bytes(b"x" * 100)
    assert fetch(document, policy, hub) == paths
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())


def test_a_stop_keeps_what_came_for_the_next_time(document: RunDocument, policy: Policy, hub: LocalHub) -> None:
    answers: Any = iter([None, "the owner paused this host"])
    failure = refusal(document, policy, hub, lambda: next(answers))
    assert (failure.kind, failure.transient) == ("stopped", True)
    assert list(Path(policy.downloads.folder or "").rglob("*.part")) or list(
        Path(policy.downloads.folder or "").rglob("*.gguf")
    )
    assert fetch(document, policy, hub)


def _keeping(policy: Policy, n_bytes: int, **changed: Any) -> Policy:
    return replace(policy, downloads=replace(policy.downloads, max_gib=n_bytes / 2**30, **changed))


def test_the_least_recently_used_download_goes_where_the_owner_says_so(
    document: RunDocument, policy: Policy, hub: LocalHub
) -> None:
    one = fetch(document, policy, hub)
    place, top = one[0].parents[1], Path(policy.downloads.folder or "")
    older, used = (top / f"owner--{name}" / ("0" * 12) for name in ("older", "used"))
    for number, copy in enumerate((older, used)):
        shutil.copytree(place, copy)
        os.utime(copy / MARK, (number, number))
    own = top / "my own" / "models"
    own.mkdir(parents=True)
    (own / "mine.gguf").write_bytes(b"m" * 10)
    touch([used / one[0].relative_to(place)])
    os.utime(place / MARK, (2, 2))
    wanted = replace(document, files=document.files[:1], repo="owner/third-GGUF")
    room = _keeping(policy, 3 * 500_000 + 10, evict="least-recently-used")
    with pytest.raises(Declined, match="does not serve"):
        fetch(wanted, room, hub)  # the Hub has no such repo: room was made all the same
    assert not older.exists()
    assert (own / "mine.gguf").exists()
    assert all(path.exists() for path in one)
    assert (used / one[0].relative_to(place)).exists()


def test_nothing_is_deleted_by_default_nor_where_it_would_not_be_enough(
    document: RunDocument, policy: Policy, hub: LocalHub
) -> None:
    paths = fetch(document, policy, hub)
    wanted = replace(document, repo="owner/third-GGUF")
    assert "more than the" in refusal(wanted, _keeping(policy, 600_000), hub).text
    tiny = _keeping(policy, 400_000, evict="least-recently-used")
    assert "more than the" in refusal(wanted, tiny, hub).text
    assert all(path.exists() for path in paths)


def test_a_days_downloads_are_limited_and_counted_as_they_come(
    document: RunDocument, policy: Policy, hub: LocalHub
) -> None:
    fetch(document, policy, hub)
    assert usage_of(policy).total().fetched_bytes == 500_000
    again = replace(document, repo="owner/third-GGUF")
    day = replace(policy, downloads=replace(policy.downloads, max_gib_per_day=900_000 / 2**30))
    failure = refusal(again, day, hub)
    assert (failure.kind, failure.transient) == ("gave_way", True)
    small = replace(policy, downloads=replace(policy.downloads, max_gib_per_day=400_000 / 2**30))
    assert refusal(again, small, hub).kind == "refused_by_policy"
    assert fetch(document, day, hub)  # what is there is not fetched again, and counts for nothing
