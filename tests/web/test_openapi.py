"""The OpenAPI document is what is kept in openapi/, and says what the app does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from service.web.document import openapi_document, openapi_json
from service.wire.advice import AdviceRequest
from service.wire.problem_types import PROBLEM_TYPES

ROOT = Path(__file__).parent.parent.parent
OPERATIONS = [
    (path, method, operation)
    for path, item in openapi_document()["paths"].items()
    for method, operation in item.items()
]


def test_the_kept_document_is_that_of_the_app() -> None:
    assert (ROOT / "openapi" / "openapi.json").read_bytes() == openapi_json(), "run `make openapi`"


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
        ("get", "/v1/moderation/reports"),
        ("post", "/v1/moderation"),
        ("get", "/v1/moderation/audit"),
        ("get", "/v1/accuracy"),
        ("get", "/health"),
        ("get", "/ready"),
        ("get", "/metrics"),
    }


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_every_operation_is_named_explained_and_fails_with_problems_only(
    path: str, method: str, operation: dict[str, Any]
) -> None:
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


def test_text_and_markdown_are_documented() -> None:
    content = openapi_document()["paths"]["/v1/advice/{advice_id}"]["get"]["responses"]["200"]["content"]
    assert list(content) == ["application/json", "text/markdown", "text/plain"]


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
