"""The OpenAPI document is what is kept in openapi/, and says what the app does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator

from service.web.documentation.document import openapi_document, openapi_json
from service.wire.advice.advice import AdviceRequest
from service.wire.problem import PROBLEM_TYPES

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "openapi" / "openapi.json"  # which test_the_kept_document_is_that_of_the_app holds to the app
OPERATIONS = [
    (path, method, operation)
    for path, item in msgspec.json.decode(KEPT.read_bytes())["paths"].items()
    for method, operation in item.items()
]


def test_the_kept_document_is_that_of_the_app() -> None:
    assert KEPT.read_bytes() == openapi_json(), "run `make openapi`"


def test_the_served_document_is_the_same(client: httpx.Client) -> None:
    reply = client.get("/openapi.json")
    assert reply.content == openapi_json()
    assert reply.json()["openapi"].startswith("3.1")


def test_every_path_of_the_design_is_there() -> None:
    assert {(method, path) for path, method, _ in OPERATIONS} == {
        ("post", "/v1/advice"),
        ("get", "/v1/advice/{advice_id}"),
        ("delete", "/v1/advice/{advice_id}"),
        ("get", "/v1/advice/{advice_id}/events"),
        ("get", "/v1/advice/{advice_id}/file"),
        ("post", "/v1/advice/{advice_id}/validations"),
        ("get", "/v1/advice/{advice_id}/hosts"),
        ("get", "/v1/validations/{validation_id}"),
        ("get", "/v1/validations/{validation_id}/events"),
        ("delete", "/v1/validations/{validation_id}"),
        ("post", "/v1/check"),
        ("get", "/v1/leaderboard"),
        ("get", "/v1/results"),
        ("get", "/v1/dumps"),
        ("get", "/v1/dumps/{name}"),
        ("get", "/v1/results/{result_id}"),
        ("get", "/v1/results/{result_id}/log"),
        ("get", "/v1/repos/{owner}/{name}"),
        ("get", "/v1/hardware/gpus"),
        ("get", "/v1/hardware/cpus"),
        ("post", "/v1/hardware/parse"),
        ("get", "/v1/account"),
        ("post", "/v1/results"),
        ("post", "/v1/results/preview"),
        ("patch", "/v1/results/{result_id}"),
        ("delete", "/v1/results/{result_id}"),
        ("get", "/v1/results/{result_id}/history"),
        ("get", "/v1/hosts"),
        ("post", "/v1/hosts/enrolments"),
        ("get", "/v1/hosts/{host_id}"),
        ("patch", "/v1/hosts/{host_id}"),
        ("delete", "/v1/hosts/{host_id}"),
        ("post", "/v1/agent/greeting"),
        ("post", "/v1/agent/hosts"),
        ("post", "/v1/agent/sessions"),
        ("post", "/v1/agent/probe"),
        ("post", "/v1/agent/leave"),
        ("post", "/v1/agent/leases"),
        ("post", "/v1/agent/runs/{run_id}/progress"),
        ("post", "/v1/agent/runs/{run_id}/report"),
        ("post", "/v1/results/{result_id}/reports"),
        ("post", "/v1/results/{result_id}/removal-requests"),
        ("get", "/v1/moderation/reports"),
        ("get", "/v1/moderation/removals"),
        ("get", "/v1/moderation/quarantined"),
        ("post", "/v1/moderation"),
        ("get", "/v1/moderation/audit"),
        ("get", "/v1/accuracy"),
        ("get", "/health"),
        ("get", "/ready"),
        ("get", "/metrics"),
    }


@pytest.mark.parametrize("operation", [one for _, _, one in OPERATIONS], ids=lambda one: one["operationId"])
def test_every_operation_is_named_explained_and_fails_with_problems_only(operation: dict[str, Any]) -> None:
    assert operation["operationId"].islower()
    assert operation["summary"]
    assert operation["description"]
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            (media, content), *others = response["content"].items()
            assert (media, others) == ("application/problem+json", [])
            assert set(content["examples"]) <= set(PROBLEM_TYPES)
            assert all(e["value"]["status"] == int(status) for e in content["examples"].values())


def test_every_reference_leads_to_a_shape_and_every_shape_is_explained() -> None:
    shapes = openapi_document()["components"]["schemas"]
    asked = set(re.findall(r'"#/components/schemas/([^"]+)"', openapi_json().decode()))
    assert asked == set(shapes)
    assert [name for name, shape in shapes.items() if not shape.get("description")] == []


def test_shapes_keep_their_bounds_and_refuse_unknown_fields() -> None:
    shapes = openapi_document()["components"]["schemas"]
    assert shapes["Constraints"]["properties"]["min_bpw"]["anyOf"][0]["minimum"] == 0
    assert shapes["AdviceRequest"]["additionalProperties"] is False


def test_examples_of_requests_are_requests() -> None:
    schema = openapi_document()["paths"]["/v1/advice"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert [msgspec.convert(example, AdviceRequest).repo for example in schema["examples"]]


def test_text_and_markdown_are_documented_and_do_not_widen_the_type_of_an_answer() -> None:
    answer = openapi_document()["paths"]["/v1/advice/{advice_id}"]["get"]["responses"]["200"]
    assert "`text/plain` or `text/markdown`" in answer["description"]
    for _, _, operation in OPERATIONS:
        assert all(len(response.get("content", {"": 0})) == 1 for response in operation["responses"].values())


def test_a_token_is_optional_by_default_and_an_operation_states_if_one_is_needed_or_not_taken() -> None:
    assert openapi_document()["security"] == [{}, {"Token": []}]
    security = [operation["security"] for _, _, operation in OPERATIONS if "security" in operation]
    assert [] in security
    assert [{"Token": []}] in security
    assert [{}, {"Token": []}] not in security


def test_what_a_client_may_leave_out_has_no_default_that_generators_take_for_always_there() -> None:
    shapes = openapi_document()["components"]["schemas"]
    request = shapes["AdviceRequest"]
    assert [name for name, field in request["properties"].items() if "default" in field] == []
    assert set(request["required"]) == {"repo", "hardware"}
    assert "Default: " in shapes["ValidationRequest"]["properties"]["mode"]["description"]


def test_every_example_is_valid_by_its_own_schema() -> None:
    components = openapi_document()["components"]
    n_checked = 0
    for _, _, operation in OPERATIONS:
        several = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media in (media for one in several for media in one.get("content", {}).values()):
            schema = {"allOf": [media["schema"]], "components": components}
            answers = (example["value"] for example in media.get("examples", {}).values())
            for example in (*answers, *media["schema"].get("examples", ())):
                Draft202012Validator(schema).validate(example)
                n_checked += 1
    assert n_checked > 100


def test_every_parameter_is_explained() -> None:
    parameters = [
        (operation["operationId"], p) for _, _, operation in OPERATIONS for p in operation.get("parameters", [])
    ]
    assert [(name, p["name"]) for name, p in parameters if not p.get("description")] == []


def test_parameters_are_of_one_kind_and_never_null() -> None:
    schemas = [p["schema"] for _, _, operation in OPERATIONS for p in operation.get("parameters", [])]
    assert [s for s in schemas if "oneOf" in s or "null" in s.get("type", "") or None in s.get("enum", [])] == []


def test_nothing_is_said_in_a_way_that_generators_of_clients_do_not_read() -> None:
    shapes = msgspec.json.encode(openapi_document()["components"]["schemas"]).decode()
    assert '"items":false' not in shapes
    assert '"default":{' not in shapes
