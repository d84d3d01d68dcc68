"""The local Hub answers as the Hub does, where huggingface_hub and we look."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url, set_client_factory

from service.outgoing.library import client_within_our_calls
from tests.hub.conftest import TINY, TINY_FILE
from tests.local_hub import TOKEN, Fault, LocalHub, commit_of

pytestmark = pytest.mark.usefixtures("library_by_itself")
R1 = "ubergarm/DeepSeek-R1-0528-GGUF"
R1_FILE = "IQ4_KS_R4/DeepSeek-R1-0528-IQ4_KS_R4-00001-of-00009.gguf"


@pytest.fixture
def library_by_itself() -> Iterator[None]:
    """huggingface_hub with a client of its own: with ours it asks within our calls only."""
    set_client_factory(lambda: httpx2.Client(follow_redirects=True, trust_env=False))
    yield
    set_client_factory(client_within_our_calls)


def test_the_listing_reads_as_one_of_huggingface_hub(local_hub: LocalHub) -> None:
    info = HfApi(endpoint=local_hub.endpoint, token=False).model_info(R1, files_metadata=True)
    assert info.sha == commit_of(R1)
    assert info.tags is not None
    assert "base_model:quantized:deepseek-ai/DeepSeek-R1-0528" in info.tags
    file = next(s for s in info.siblings or () if s.rfilename == R1_FILE)
    assert file.lfs is not None
    assert file.lfs.size == file.size
    assert file.size is not None
    assert file.size > 30 << 30


def test_the_redirect_carries_what_huggingface_hub_reads(local_hub: LocalHub) -> None:
    url = hf_hub_url(R1, R1_FILE, revision="main", endpoint=local_hub.endpoint)
    found = get_hf_file_metadata(url, token=False, endpoint=local_hub.endpoint)
    assert found.commit_hash == commit_of(R1)
    assert found.location.startswith(local_hub.cdn)
    assert found.size == local_hub.state.files(R1)[R1_FILE].n_bytes
    assert found.etag == local_hub.state.files(R1)[R1_FILE].oid


def test_a_search_by_base_model_is_answered(local_hub: LocalHub) -> None:
    api = HfApi(endpoint=local_hub.endpoint, token=False)
    found = api.list_models(filter=["base_model:quantized:Qwen/Qwen3-235B-A22B", "gguf"], limit=5)
    assert [m.id for m in found] == ["unsloth/Qwen3-235B-A22B-GGUF"]


def test_ranges_far_behind_the_header_are_zeros(local_hub: LocalHub) -> None:
    with httpx.Client(base_url=local_hub.endpoint, follow_redirects=True) as client:
        reply = client.get(f"/{R1}/resolve/main/{R1_FILE}", headers={"range": "bytes=40000000000-40000000009"})
    assert reply.status_code == 206
    assert reply.content == bytes(10)


def test_what_is_behind_the_end_is_no_range(local_hub: LocalHub) -> None:
    with httpx.Client(base_url=local_hub.endpoint, follow_redirects=True) as client:
        reply = client.get(f"/{TINY}/resolve/main/{TINY_FILE}", headers={"range": f"bytes={1 << 40}-"})
    assert reply.status_code == 416


def test_small_files_are_served_without_a_redirect(local_hub: LocalHub) -> None:
    reply = httpx.get(f"{local_hub.endpoint}/{R1}/resolve/main/README.md")
    assert reply.status_code == 200
    assert reply.text.startswith("# DeepSeek")


@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/api/models/nobody/nothing", None, 401, None),
        ("/api/models/nobody/nothing", TOKEN, 404, "RepoNotFound"),
        (f"/api/models/{TINY}/revision/v9", None, 404, "RevisionNotFound"),
        (f"/{TINY}/resolve/main/none.gguf", None, 404, "EntryNotFound"),
        ("/local/gated-GGUF/resolve/main/Qwen3-4B-Q8_0.gguf", None, 401, "GatedRepo"),
        ("/local/gated-GGUF/resolve/main/Qwen3-4B-Q8_0.gguf", TOKEN, 403, "GatedRepo"),
        (f"/api/models/{TINY}", "hf_wrong", 401, None),
        ("/somewhere", None, 404, None),
    ],
)
def test_refusals_have_the_hubs_status_and_code(
    local_hub: LocalHub, path: str, token: str | None, status: int, code: str | None
) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    reply = httpx.get(local_hub.endpoint + path, headers=headers)
    assert (reply.status_code, reply.headers.get("x-error-code")) == (status, code)
    assert local_hub.requests[-1].status == status


def test_a_fault_is_used_up_and_forgotten(local_hub: LocalHub) -> None:
    url = f"{local_hub.endpoint}/api/models/{TINY}"
    local_hub.fail(Fault("status", "api", TINY, times=1, status=500))
    assert [httpx.get(url).status_code for _ in range(2)] == [500, 200]
    local_hub.fail(Fault("status", "api", TINY, status=500))
    local_hub.reset()
    assert httpx.get(url).status_code == 200


def test_it_runs_by_itself_and_stops_when_told(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-m", "tests.local_hub"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert httpx.get(f"{endpoint}/api/models/local/not-a-GGUF").status_code == 200
        process.terminate()
        assert process.wait(timeout=60) == 0
