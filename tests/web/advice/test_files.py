"""An advice as a file for another program, and in short, over HTTP."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from service.engine.advice import AdvisedConfig
from service.engine.commands.parse import parse
from service.engine.commands.read_files import commands_of
from service.web.documentation.document import openapi_document
from tests.web.world import World
from tests.wire.test_text import advice


@pytest.fixture(scope="module")
def configs() -> list[AdvisedConfig]:
    return advice().configs


@pytest.fixture
def ready(world: World, configs: list[AdvisedConfig]) -> World:
    world.put("one", "ready", configs=configs)
    world.put("two", "ready", configs=[replace(one, variant="Q3_K_S") for one in configs])
    return world


def test_each_rank_is_a_file(client: httpx.Client, ready: World, configs: list[AdvisedConfig]) -> None:
    for config in configs:
        reply = client.get(f"/v1/advice/one/file?as=llama-swap&config={config.rank}")
        assert reply.headers["content-disposition"] == 'inline; filename="llama-swap.yaml"'
        (found,) = commands_of(reply.text)
        assert parse(found.command, config.engine).flags == parse(config.commands.server, config.engine).flags


def test_one_file_serves_the_models_of_several_advices(client: httpx.Client, ready: World) -> None:
    text = client.get("/v1/advice/one/file?as=llama-swap&with=two").text
    assert len(msgspec.yaml.decode(text)["models"]) == 2


@pytest.mark.parametrize(
    ("query", "field"), [("as=llama-swap&config=99", "config"), ("as=llama-swap&with=one", "with"), ("as=ini", "as")]
)
def test_what_cannot_be_is_refused_by_name(client: httpx.Client, ready: World, query: str, field: str) -> None:
    reply = client.get(f"/v1/advice/one/file?{query}")
    assert (reply.status_code, reply.json()["field"]) == (422, field)


def test_an_advice_that_is_not_ready_has_no_file(client: httpx.Client, world: World) -> None:
    world.put("one", "running")
    assert client.get("/v1/advice/one/file?as=compose").status_code == 422
    assert client.get("/v1/advice/none/file?as=compose").status_code == 404


def test_the_page_links_the_formats_that_can_hold_the_first_config(
    client: httpx.Client, world: World, configs: list[AdvisedConfig]
) -> None:
    llama_cpp = replace(next(c for c in configs if c.engine == "llama.cpp"), rank=1)
    world.put("one", "ready", configs=[llama_cpp])
    page = client.get("/advice/one").text
    for form in ("llama-swap", "preset", "compose", "systemd"):
        assert f'href="/v1/advice/one/file?as={form}"' in page
        assert client.get(f"/v1/advice/one/file?as={form}").status_code == 200


@pytest.mark.parametrize("detail", ["short", "full", "card"])
def test_advice_in_any_detail_is_one_of_the_documented_shapes(client: httpx.Client, ready: World, detail: str) -> None:
    document = openapi_document()
    answer = document["paths"]["/v1/advice/{advice_id}"]["get"]["responses"]["200"]
    schema = {"allOf": [answer["content"]["application/json"]["schema"]], "components": document["components"]}
    Draft202012Validator(schema).validate(client.get(f"/v1/advice/one?detail={detail}").json())


def test_the_card_is_json_in_short(client: httpx.Client, ready: World) -> None:
    whole, card = client.get("/v1/advice/one"), client.get("/v1/advice/one?detail=card")
    assert (card.json()["version"], card.json()["id"]) == (1, "one")
    assert len(card.content) < len(whole.content) / 3
