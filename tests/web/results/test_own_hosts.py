"""`/hosts` with a token: what the owner's machines gave, shown to nobody else."""

from __future__ import annotations

import httpx
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.context import utc_now
from tests.databases import postgres
from tests.web.joining import shared_app, shared_engine

__all__ = ["postgres", "shared_app", "shared_engine"]


def test_an_owner_sees_what_his_machines_gave_and_a_wrong_token_nothing(
    shared_app: httpx.Client, shared_engine: Engine, redis: object
) -> None:
    token = create_token(shared_engine, "hilda", ["host"], utc_now()).token
    page = shared_app.post("/hosts", data={"token": token})
    assert page.status_code == 200
    assert "You have no hosts." in page.text
    assert "hosts measured 0 runs for you" in page.text
    assert token not in page.text
    assert page.headers["cache-control"] == "no-store"
    for wrong in ("x", "adv_" + "x" * 43, "y" * 300, ""):
        refused = shared_app.post("/hosts", data={"token": wrong})
        assert (refused.status_code, "You have no hosts." in refused.text) == (401, False)
    assert shared_app.post("/hosts", data={"token": token}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
