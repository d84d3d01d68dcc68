"""Recorded replies of the Hub and of mirrors, by the real code over TLS with real host names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.engine.errors import AdvisorError
from service.engine.gguf.header import Header
from service.hub.client import Hub
from service.hub.listing import ListingLimits
from service.hub.references import RepoReference
from tests.models import gguf_bytes
from tests.recorded.network import Asked, Network, Recorded, made_certificates, network_of

HERE = Path(__file__).parent / "hub"
REFUSALS: list[dict[str, Any]] = json.loads((HERE / "refusals.json").read_text())
REDIRECTS: list[dict[str, Any]] = json.loads((HERE / "redirects.json").read_text())
HOSTS = ["huggingface.co", "hf.co", "hf-mirror.com", "cas-bridge.xethub.hf.co", "us.aws.cdn.hf.co", "evil.example"]
REPO = RepoReference("owner", "name-GGUF")
COMMIT, FILE, TOKEN = "0e9003194e75b699f924f4694c6e9e9a65b35248", "name-Q8_0.gguf", "hf_secret"
CONTENT, SIZE = gguf_bytes("Qwen3-0.6B", "q8_0", small=True), 1 << 30  # the header; the weights are not asked for
LISTING = {
    "id": "owner/name-GGUF", "sha": COMMIT, "private": False, "gated": False, "tags": [],
    "siblings": [{"rfilename": FILE, "size": SIZE}],
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made_certificates(tmp_path_factory.mktemp("authority"), HOSTS)


def hub_at(endpoint: str = "https://huggingface.co", **more: Any) -> Hub:
    return Hub(endpoint, TOKEN, sleep=lambda _: None, limits=ListingLimits(longest_wait=1.0), **more)


def a_hub(asked: Asked) -> Recorded:
    """Answer as the Hub itself does."""
    if asked.path.startswith("/api/models/"):
        return Recorded(200, {"content-type": "application/json"}, json.dumps(LISTING).encode())
    start, _, stop = (asked.range or "bytes=0-").removeprefix("bytes=").partition("-")
    part = CONTENT[int(start) : int(stop or len(CONTENT)) + 1]
    described = {"content-range": f"bytes {start}-{int(start) + len(part) - 1}/{SIZE}"}
    return Recorded(206 if asked.range else 200, described if asked.range else {}, part)


@pytest.mark.parametrize("recorded", REFUSALS, ids=lambda one: str(one["name"]))
def test_a_refusal_is_what_it_is_recorded_to_mean(
    recorded: dict[str, Any], certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Recorded(recorded["status"], recorded["headers"], recorded.get("body", "").encode())
    name, said = recorded["means"]
    with network_of(lambda _: reply, certificates, HOSTS, monkeypatch):
        hub = hub_at()
        with pytest.raises(AdvisorError) as caught:
            hub.list_repo(REPO)
        hub.close()
    assert type(caught.value).__name__ == name
    assert said in caught.value.detail
    assert TOKEN not in caught.value.detail


@pytest.mark.parametrize("recorded", REDIRECTS, ids=lambda one: str(one["name"]))
def test_a_file_is_read_behind_every_kind_of_redirect_without_our_token(
    recorded: dict[str, Any], certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked) -> Recorded:
        if f"/resolve/{COMMIT}/" in asked.path:
            return Recorded(recorded["status"], {**recorded["headers"], "location": recorded["location"]})
        return a_hub(asked)

    with network_of(answer, certificates, HOSTS, monkeypatch) as network:
        header = read(hub_at())
    assert header.tensors
    assert_token_stays(network, "huggingface.co")
    assert network.asked[-1].path == recorded["location"].removeprefix(f"https://{network.asked[-1].host}")


@pytest.mark.parametrize(("endpoint", "status"), [("https://hf-mirror.com", 308), ("https://hf.co", 301)])
def test_an_endpoint_that_redirects_to_the_hub_is_followed_without_our_token(
    endpoint: str, status: int, certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = endpoint.removeprefix("https://")

    def answer(asked: Asked) -> Recorded:
        if asked.host == mirror:
            return Recorded(status, {"location": f"https://huggingface.co{asked.path}"})
        return a_hub(asked)

    with network_of(answer, certificates, HOSTS, monkeypatch) as network:
        assert read(hub_at(endpoint)).tensors
    assert {asked.host for asked in network.asked} == {mirror, "huggingface.co"}
    assert_token_stays(network, mirror)


def test_a_listing_is_led_to_a_host_that_the_operator_named_and_nowhere_else(
    certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked) -> Recorded:
        if asked.host == "huggingface.co":
            return Recorded(307, {"location": f"https://evil.example{asked.path}"})
        return a_hub(asked)

    with network_of(answer, certificates, HOSTS, monkeypatch) as network:
        hub = hub_at()
        with pytest.raises(AdvisorError, match="not among the addresses"):
            hub.list_repo(REPO)
        hub.close()
        assert {asked.host for asked in network.asked} == {"huggingface.co"}
        named = hub_at(hosts=["evil.example"])
        assert named.list_repo(REPO).names == ("Q8_0",)
        named.close()
    assert_token_stays(network, "huggingface.co")


def read(hub: Hub) -> Header:
    """Return the header of the one file, and close the hub."""
    try:
        listing = hub.list_repo(REPO)
        return hub.read_header(listing, listing.variants[0])
    finally:
        hub.close()


def assert_token_stays(network: Network, endpoint: str) -> None:
    for asked in network.asked:
        assert asked.authorization == (f"Bearer {TOKEN}" if asked.host == endpoint else None), asked.host
