"""huggingface_hub asks where our rule allows, and nowhere else."""

from __future__ import annotations

import socket

import httpx2
import pytest
from huggingface_hub import HfApi

from service.hub.client import Hub
from service.hub.errors import HubReplyRefused, HubUnavailable, RepoNotFound
from service.hub.listing import ListingLimits
from service.hub.references import parse_repo_reference
from service.outgoing.rules import Refused
from tests.hub.conftest import TINY, connect, local_hub, running_hub, slept
from tests.local_hub import TOKEN, Fault, LocalHub

__all__ = ["connect", "local_hub", "running_hub", "slept"]


def list_repo(hub: Hub, repo: str = TINY) -> object:
    return hub.list_repo(parse_repo_reference(repo))


def test_outside_of_a_call_of_ours_nothing_is_asked(local_hub: LocalHub) -> None:
    import service.outgoing.library  # noqa: F401

    with pytest.raises(Refused):
        HfApi(endpoint=local_hub.endpoint, token=False).model_info(TINY)
    assert local_hub.requests == []


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest", "https://evil.example/api", "http://127.0.0.1:{}/"]
)
def test_the_listing_is_not_led_elsewhere(local_hub: LocalHub, slept: list[float], location: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.05)
        local_hub.fail(Fault("redirect", "api", TINY, location=location.format(elsewhere.getsockname()[1])))
        hub = Hub(local_hub.endpoint, TOKEN, sleep=slept.append)
        with pytest.raises(HubReplyRefused):
            list_repo(hub)
        with pytest.raises(TimeoutError):
            elsewhere.accept()
        hub.close()
    assert len(local_hub.requests) == 1


def test_a_repo_that_moved_is_followed_on_the_endpoint(local_hub: LocalHub, slept: list[float]) -> None:
    local_hub.fail(Fault("redirect", "api", "old/name", location=f"/api/models/{TINY}?blobs=true"))
    hub = Hub(local_hub.endpoint, sleep=slept.append)
    with pytest.raises((RepoNotFound, HubUnavailable)):  # of a repo that it does not have, this Hub says so first
        list_repo(hub, "old/name")
    local_hub.fail(Fault("redirect", "api", TINY, times=1, location=f"/api/models/{TINY}?blobs=true"))
    assert list_repo(hub)
    hub.close()


def test_a_listing_of_endless_redirects_is_refused(local_hub: LocalHub, slept: list[float]) -> None:
    local_hub.fail(Fault("redirect", "api", TINY, location=f"/api/models/{TINY}?blobs=true"))
    hub = Hub(local_hub.endpoint, sleep=slept.append)
    with pytest.raises(HubReplyRefused, match="in a loop"):
        list_repo(hub)
    hub.close()


def test_a_listing_without_end_is_refused(
    local_hub: LocalHub, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.hub.client._MAX_LISTING_BYTES", 100)
    hub = Hub(local_hub.endpoint, sleep=slept.append)
    with pytest.raises(HubReplyRefused, match="larger"):
        list_repo(hub)
    hub.close()


def test_a_listing_that_came_compressed_is_refused(local_hub: LocalHub, slept: list[float]) -> None:
    local_hub.fail(Fault("body", "api", TINY, content=b"\x1f\x8b", headers={"content-encoding": "gzip"}))
    hub = Hub(local_hub.endpoint, sleep=slept.append)
    with pytest.raises(HubReplyRefused, match="compressed"):
        list_repo(hub)
    hub.close()


def test_a_hub_whose_name_leads_inside_is_not_asked(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("service.outgoing.connections.socket.getaddrinfo", resolve)
    hub = Hub(token=TOKEN, sleep=slept.append, limits=ListingLimits(attempts=1))
    with pytest.raises(HubUnavailable) as caught:
        list_repo(hub)
    assert isinstance(caught.value.__cause__.__cause__, httpx2.ConnectError)  # type: ignore[union-attr]
    assert "no address that may be asked" in str(caught.value.__cause__.__cause__)  # type: ignore[union-attr]
    hub.close()
