"""Forms are taken from the site's own pages, and from programs; not from pages of other sites."""

from __future__ import annotations

import httpx
import pytest

from tests.valkeys import redis, valkey
from tests.web.conftest import client, server, settings, shared_world, world
from tests.web.http.test_problems import assert_problem

__all__ = ["client", "redis", "server", "settings", "shared_world", "valkey", "world"]
FORMS = ("/advice", "/advice/one/deletion", "/submit", "/results/one/reports", "/results/one/changes", "/removal")


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "x"])
def test_a_form_of_another_site_is_refused(client: httpx.Client, path: str, site: str) -> None:
    """A page that many visit could else have each of them send results and reports, past every limit for one client."""
    assert_problem(client.post(path, data={"a": "b"}, headers={"sec-fetch-site": site}), 403, "not-allowed")


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}])
def test_a_form_of_this_site_is_taken(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.post("/submit", data={"remarks": "x"}, headers=headers).status_code in (200, 422)


def test_a_page_elsewhere_cannot_send_json_without_being_asked_first(client: httpx.Client) -> None:
    """A browser asks by OPTIONS before it sends JSON to another site, and is not let."""
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = client.options("/v1/advice", headers=asked)
    assert "access-control-allow-origin" not in reply.headers
    plain = client.post("/v1/advice", content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415
