"""What Schemathesis needs to be let in, tokens, signatures and addresses, and what it shall hold answers to besides."""

from __future__ import annotations

import random
import re
import threading
from typing import Any
from urllib.parse import urlsplit

import requests
import schemathesis
from requests.auth import AuthBase
from schemathesis.core import NotSet

from bench.contract.world import World

_MEDIA_TYPE = re.compile(r"`((?:text|application)/[a-z]+)`")
_WAITS = 1  # seconds that a call is held at most
_SINGLE = 0.1  # of the calls are made with a token of one scope, the rest with one of all


class Credentials(AuthBase):
    """Signs requests of a host and adds a token to all others, each from a new address."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random, self._lock = world, random.Random(seed), threading.Lock()

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with credentials."""
        path, body = urlsplit(request.url or "").path, request.body or b""
        request.headers.update(self._world.address())
        with self._lock:
            if path.startswith("/v1/agent/"):
                assert isinstance(body, str | bytes), "a body that is sent in one piece"
                content = body.encode() if isinstance(body, str) else body
                signed = self._world.agent.headers(path, content)
                del signed["content-type"]
                request.headers.update(signed)
            elif self._random.random() < _SINGLE:
                request.headers.update(self._random.choice(self._world.single))
            else:
                request.headers.update(self._world.all)
        return request


def shortened(value: Any) -> Any:
    """Return a body or query that asks for no long wait, and whose whole numbers are written as such.

    JSON Schema takes 11.0 for an integer, and so does this service's document; the service itself refuses it.
    """
    if isinstance(value, dict):
        found = {name: shortened(one) for name, one in value.items()}
        wait = found.get("wait")
        return {**found, "wait": _WAITS} if isinstance(wait, int) and _WAITS < wait <= 30 else found
    if isinstance(value, list):
        return [shortened(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def as_shapes(document: dict[str, Any]) -> None:
    """Express in shapes what the document says in words, because generated clients would misread these shapes.

    The other media types that a description names, in which problems come as well; and events, whose `data` is JSON.
    """
    text = {"type": "string"}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    for operation in operations:
        described = " ".join(one.get("description", "") for one in operation["responses"].values())
        for response in operation["responses"].values():
            content = response.get("content", {})
            content |= {kind: {"schema": text} for kind in _MEDIA_TYPE.findall(described)}
    for response in [one for operation in operations for one in operation["responses"].values()]:
        content = response.get("content", {})
        if (events := content.get("text/event-stream")) is not None:
            fields = {"event": text, "id": text, "data": events["schema"]}
            events["schema"] = {"type": "object", "properties": fields, "required": list(fields)}


def install(world: World, seed: int) -> None:
    """Make every call of this process's Schemathesis carry credentials of `world`, and check more of each answer."""
    schemathesis.auth.set_from_requests(Credentials(world, seed))  # type: ignore[attr-defined]

    @schemathesis.hook
    def before_load_schema(context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
        as_shapes(raw_schema)

    @schemathesis.hook
    def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
        short = shortened({"wait": _WAITS} if case.body == {} and case.path == "/v1/agent/leases" else case.body)
        if short != case.body or repr(short) != repr(case.body):
            case.body = short
        if case.query and isinstance(case.query.get("wait"), int) and _WAITS < case.query["wait"] <= 30:
            case.query = {**case.query, "wait": _WAITS}

    @schemathesis.hook
    def after_call(
        context: schemathesis.HookContext, case: schemathesis.Case[Any], response: schemathesis.Response
    ) -> None:
        path = urlsplit(response.request.url or "").path
        if path == "/v1/agent/sessions" and response.status_code == 201:
            world.agent.token = response.json()["token"]
        elif path.startswith("/v1/agent/") and response.status_code in (401, 403):
            world.new_agent()  # it left, or its owner paused or revoked it


@schemathesis.check
def refused_in_words(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """Check that every refusal is a problem with a sentence, and that a wrong value names its field.

    As text it is sentences alone.
    """
    if response.status_code < 400 or not response.content:
        return
    if response.headers["content-type"][0].startswith("text/"):
        assert response.text.strip(), "no word on what is wrong"
        return
    found = response.json()
    assert found["status"] == response.status_code, "the problem states another status"
    assert found["detail"], "no word on what is wrong"
    names_a_field = response.status_code != 422 or found.get("field")
    assert names_a_field or not isinstance(case.body, dict | NotSet), f"no field is named: {found['detail']}"
