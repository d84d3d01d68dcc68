"""Messages of the Model Context Protocol, of both kinds of clients, and what they are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from service.engine.errors import InvalidInput
from service.wire import mcp, mcp_tools

CLIENTS = Path(__file__).parents[1] / "data" / "mcp_clients.jsonl"
TOOLS = {name: mcp_tools.TOOLS[name] for name in ("advise", "hardware")}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ASKED = {"repo": "a/b", "hardware": "RTX 3090", "context": 8192, "engine": "llama.cpp", "variant": "Q4_K_M"}


def sent(method: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    return mcp.received(msgspec.json.encode(message), TOOLS, headers)


def stateless(method: str, **params: Any) -> Any:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    return sent(method, {"_meta": META, **params}, headers)


@pytest.mark.parametrize(("asked", "spoken"), [("2025-03-26", "2025-03-26"), ("2019-01-01", "2025-11-25")])
def test_an_older_client_begins_with_initialize_and_gets_its_version_or_the_newest_of_its_kind(
    asked: str, spoken: str
) -> None:
    result = sent("initialize", {"protocolVersion": asked, "capabilities": {}}).body["result"]
    assert (result["protocolVersion"], result["capabilities"]) == (spoken, {"tools": {}})
    assert "resultType" not in result
    assert sent("ping").body["result"] == {}


def test_a_client_of_2026_discovers_the_server_and_may_keep_the_list() -> None:
    result = stateless("server/discover").body["result"]
    assert (result["supportedVersions"][-1], result["resultType"]) == ("2026-07-28", "complete")
    listed = stateless("tools/list").body["result"]
    assert [tool["name"] for tool in listed["tools"]] == ["advise", "hardware"]
    assert (listed["cacheScope"], listed["ttlMs"] > 0) == ("public", True)
    assert stateless("ping").status == 404


def test_a_call_has_the_arguments_of_the_api() -> None:
    call = stateless("tools/call", name="advise", arguments=ASKED)
    request = call.arguments.request()
    assert (request.repo, request.goal.context) == ("a/b", 8192)
    assert (request.constraints.variants, request.constraints.engines[0].name) == (["Q4_K_M"], "llama.cpp")
    reply = mcp.result_of(call, "the text").body
    assert reply is not None
    assert reply["result"]["content"] == [{"type": "text", "text": "the text"}]


# As clients send what their model left out (NVIDIA/NeMo-Agent-Toolkit#1269, metatool-ai/metamcp#365,
# anthropics/claude-code#95239), numbers (VibiumDev/vibium#85) and lists (punkpeye/mcp-remote#319).
@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ({"context": None, "goal": None, "engine": "", "variant": "null", "what_if": None}, {}),
        ({"context": "8192"}, {"context": 8192}),
        ({"context": 8192.0}, {"context": 8192}),
        ({"images": "true"}, {"images": True}),
        ({"what_if": '["+1 RTX 3090", "best"]'}, {"what_if": ["+1 RTX 3090", "best"]}),
        ({"what_if": "+1 RTX 3090"}, {"what_if": ["+1 RTX 3090"]}),
    ],
)
def test_arguments_are_read_as_models_write_them(written: dict[str, Any], understood: dict[str, Any]) -> None:
    call = sent("tools/call", {"name": "advise", "arguments": {"repo": "a/b", "hardware": "x", **written}})
    assert call.arguments == mcp_tools.Advise(repo="a/b", hardware="x", **understood)


def test_an_agent_can_ask_for_images() -> None:
    call = sent("tools/call", {"name": "advise", "arguments": {"repo": "a/b", "hardware": "x", "images": True}})
    assert call.arguments.request().constraints.images


def test_what_the_caller_can_repair_is_a_result_that_says_so() -> None:
    wrong = sent("tools/call", {"name": "advise", "arguments": {"repo": "a/b", "hardware": "x", "goal": "chatt"}})
    assert wrong.body["result"]["isError"]
    assert "chat" in wrong.body["result"]["content"][0]["text"]
    call = sent("tools/call", {"name": "hardware", "arguments": {"text": "RTX 9999"}})
    failed = mcp.failure_of(call, InvalidInput("not known", field="text", choices=("RTX 5090",))).body
    assert failed is not None
    assert failed["result"]["content"][0]["text"] == "text: not known\nPossible: RTX 5090"


@pytest.mark.parametrize(
    ("header", "value"), [("mcp-method", "tools/call"), ("mcp-protocol-version", "2025-11-25"), ("mcp-method", None)]
)
def test_headers_that_say_otherwise_than_the_message_are_refused(header: str, value: str | None) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    headers = headers | {header: value} if value else {k: v for k, v in headers.items() if k != header}
    reply = sent("tools/list", {"_meta": META}, headers)
    assert (reply.status, "error" in reply.body) == (400, True)


def test_a_version_that_is_not_spoken_is_answered_with_those_that_are() -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    error = sent("tools/list", {"_meta": meta}).body["error"]
    assert (error["code"], error["data"]["requested"]) == (-32022, "2031-01-01")
    assert "2026-07-28" in error["data"]["supported"]
    assert sent("tools/list", headers={"mcp-protocol-version": "2031-01-01"}).status == 400


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"jsonrpc": "1.0"}', b'{"jsonrpc":"2.0","id":true,"method":"ping"}'])
def test_what_is_no_message_is_an_error_without_an_id(text: bytes) -> None:
    reply = mcp.received(text, TOOLS)
    assert isinstance(reply, mcp.Reply)
    assert reply.body is not None
    assert reply.body["id"] is None


def test_a_method_that_is_no_text_is_an_error_and_no_defect() -> None:
    text = {"jsonrpc": "2.0", "id": 7, "method": ["ping"], "params": {"_meta": META}}
    reply = mcp.received(msgspec.json.encode(text), TOOLS, {"mcp-protocol-version": "2026-07-28"})
    assert isinstance(reply, mcp.Reply)
    assert reply.body is not None
    assert (reply.status, reply.body["id"], reply.body["error"]["code"]) == (400, 7, -32600)


@pytest.mark.parametrize("line", CLIENTS.read_bytes().splitlines())
@pytest.mark.parametrize("over_http", [True, False])
def test_official_clients_are_answered_what_they_ask(line: bytes, over_http: bool) -> None:
    sent = msgspec.json.decode(line)
    message = msgspec.json.decode(sent["body"])
    answer = mcp.received(sent["body"].encode(), TOOLS, sent["headers"] if over_http else None)
    if "id" not in message:
        ends = message["method"] == "notifications/cancelled"
        assert answer == mcp.Reply(None, 202, message["params"]["requestId"] if ends else None)
    elif isinstance(answer, mcp.Call):
        assert (answer.id, answer.arguments) == (message["id"], mcp_tools.HardwareArguments(text="RTX 3090"))
    else:
        assert answer.body is not None
        assert (answer.status, answer.body["id"]) == (200, message["id"])
        assert bool(answer.body["result"].get("isError")) == (message["method"] == "tools/call")  # without hardware


def test_a_notification_has_no_answer() -> None:
    assert mcp.received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', TOOLS) == mcp.Reply(None, 202)


def test_an_unknown_method_or_tool_is_an_error() -> None:
    assert sent("resources/list").body["error"]["code"] == -32601
    assert stateless("resources/list").status == 404
    assert sent("tools/call", {"name": "format_disk"}).body["error"]["code"] == -32602


@pytest.mark.parametrize("tool", [*mcp_tools.TOOLS.values(), mcp_tools.THIS_HARDWARE])
def test_tools_only_read_and_describe_their_arguments_by_a_schema_with_an_object_at_its_root(
    tool: mcp_tools.Tool,
) -> None:
    described = tool.described()
    Draft202012Validator.check_schema(described["inputSchema"])
    assert described["inputSchema"]["type"] == "object"
    assert described["annotations"]["readOnlyHint"]


# llama.cpp makes one grammar of all tools: for one that it cannot read, nothing is answered. Lookaheads:
# codefuturist/email-mcp#58; long texts: llama.cpp#17473. Gemini: google-gemini/gemini-cli#4400 and #4127. Both know
# booleans: PRIMITIVE_RULES of llama.cpp's common/json-schema-to-grammar.cpp, and Gemini's enum Type.
@pytest.mark.parametrize("tool", [*mcp_tools.TOOLS.values(), mcp_tools.THIS_HARDWARE])
def test_each_argument_has_one_type_and_no_more_rules_than_every_client_understands(tool: mcp_tools.Tool) -> None:
    known = {"type", "description", "enum", "default", "items", "minimum", "maximum"}
    for argument in tool.described()["inputSchema"]["properties"].values():
        assert argument["type"] in ("string", "integer", "boolean", "array")
        assert set(argument) <= known
        assert all(isinstance(choice, str) for choice in argument.get("enum", ()))
    depth = mcp_tools.TOOLS["leaderboard"].described()["inputSchema"]["properties"]["depth"]
    assert depth["description"] == "tokens in the cache: 0, 4096, 16384, 32768, 65536"
