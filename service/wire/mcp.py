"""The Model Context Protocol: read-only tools, over HTTP and on standard input and output.

There are two kinds of clients: those of 2026-07-28 state their version in each message and need no session
(`server/discover`, headers that repeat the message); older ones begin with `initialize`. No state is kept between
messages of either kind. Batches are refused, as in every version since 2025-06-18.

Source: modelcontextprotocol.io/specification/2026-07-28 and 2025-11-25 (basic, server/discover, server/tools,
basic/transports); tests compare with the official Python SDK 2.3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from service import __version__
from service.engine.decoding import refused
from service.engine.errors import AdvisorError, InvalidInput
from service.wire.mcp_tools import Arguments, Tool

STATELESS = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_META = "io.modelcontextprotocol/"
_LIST_MS = 3_600_000  # how long clients may cache the list of tools, which changes only with the program's version
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # repeated in the header Mcp-Name
_PARSE, _REQUEST, _METHOD, _PARAMS = -32700, -32600, -32601, -32602
_INTERNAL, _HEADERS_DIFFER, _VERSION = -32603, -32020, -32022
_STATUS = {_PARSE: 400, _REQUEST: 400, _METHOD: 404, _PARAMS: 400, _HEADERS_DIFFER: 400, _VERSION: 400}
_INSTRUCTIONS = (
    "Where to put a GGUF model on somebody's hardware, computed from its header before any download. Ask `advise` with "
    "the repo and the hardware for ranked commands, `check` for a command that is in use. Speeds are 80 % intervals; "
    "hand on what the answer says it assumed. Commands are meant to be pasted as they stand."
)


class Reply(msgspec.Struct, frozen=True):
    """A reply: a message, or nothing (`body` None), and its HTTP status.

    `cancels`: the id of the call that is no longer wanted.
    """

    body: dict[str, Any] | None
    status: int = 200
    cancels: str | int | None = None


class Call(msgspec.Struct, frozen=True):
    """A tool to run with its arguments. `id` and `version` are the requesting message's.

    `token`: what its client calls its progress, None if the client wants to hear none.
    """

    id: str | int
    version: str
    tool: Tool
    arguments: Arguments
    token: str | int | None = None


class ProtocolError(Exception):
    """A message that is answered with a protocol error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


def received(text: bytes, tools: Mapping[str, Tool], headers: Mapping[str, str] | None = None) -> Reply | Call:
    """Return the reply to a message, or the tool call that it asks for.

    `headers`: of the HTTP request, names in lower case; None on standard input.
    """
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _error(None, {"code": _PARSE, "message": "the message is not JSON"}, STATELESS)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _error(None, {"code": _REQUEST, "message": "the message is not a single JSON-RPC 2.0 object"}, STATELESS)
    identity, version = message.get("id"), STATELESS
    if "id" not in message or "method" not in message:  # a notification, or a reply, though we never ask anything
        ends = message.get("method") == "notifications/cancelled"
        return Reply(None, 202, _token(_object(message.get("params")).get("requestId")) if ends else None)
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        return _error(None, {"code": _REQUEST, "message": "`id` is a string or a whole number"}, STATELESS)
    if not isinstance(message["method"], str):
        return _error(identity, {"code": _REQUEST, "message": "`method` is a string"}, STATELESS)
    try:
        version = _version(message, headers)
        return _answered(message, identity, version, tools)
    except ProtocolError as refused:
        return _error(identity, refused.error, version)


def result_of(call: Call, text: str) -> Reply:
    """Return the reply to a finished call: a text, and no object for programs.

    Of both, clients show their model one (only the object: anthropics/claude-code#79944), and the text says more.
    """
    return _success(call.id, {"content": [{"type": "text", "text": text}]}, call.version)


def progress_of(call: Call, share: float, text: str) -> Reply:
    """Return how far a call is, from 0 to 1, and what is being done; nothing if its client has not asked for it."""
    if call.token is None:
        return Reply(None)
    told = {"progressToken": call.token, "progress": round(share, 3), "total": 1, "message": text}
    return Reply({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})


def failure_of(call: Call, error: AdvisorError) -> Reply:
    """Return the reply to a call that failed as expected, for the caller's model to read and perhaps correct."""
    nearest = f"\nPossible: {', '.join(error.choices[:20])}" if error.choices else ""
    retry = getattr(error, "retry_after", None)
    text = (
        f"{f'{error.field}: ' if error.field else ''}{error.detail}{nearest}{f' (again in {retry} s)' if retry else ''}"
    )
    return _success(call.id, {"content": [{"type": "text", "text": text}], "isError": True}, call.version)


def defect_of(call: Call) -> Reply:
    """Return the reply to a call that failed unexpectedly, revealing nothing internal."""
    return _error(call.id, {"code": _INTERNAL, "message": "this should not have happened"}, call.version)


def _version(message: Mapping[str, Any], headers: Mapping[str, str] | None) -> str:
    """Return a message's protocol version. Raises ProtocolError for an unknown one, or headers that differ from it."""
    said = (headers or {}).get("mcp-protocol-version")
    meta = _object(_object(message.get("params")).get("_meta"))
    if f"{_META}protocolVersion" not in meta and (said is None or said in HANDSHAKE):
        return HANDSHAKE[-1]
    missing = [f"{_META}{name}" for name in ("protocolVersion", "clientCapabilities") if f"{_META}{name}" not in meta]
    version = meta.get(f"{_META}protocolVersion")
    if said is not None and said not in (STATELESS, version):
        raise _unsupported(said)
    if missing or not isinstance(version, str):
        raise ProtocolError(_PARAMS, f"params._meta lacks {', '.join(missing) or 'a version that is a string'}")
    if headers is not None:
        _compare(message, version, headers)
    if version != STATELESS:
        raise _unsupported(version)
    return version


def _unsupported(version: str) -> ProtocolError:
    supported = [*HANDSHAKE, STATELESS]
    return ProtocolError(_VERSION, "unsupported protocol version", {"supported": supported, "requested": version})


def _compare(message: Mapping[str, Any], version: str, headers: Mapping[str, str]) -> None:
    """Check that the headers, by which proxies route, agree with the message."""
    method = message["method"]
    wanted = {"mcp-protocol-version": version, "mcp-method": method}
    if method in _NAMED:
        wanted["mcp-name"] = _object(message.get("params")).get(_NAMED[method])
    for name, value in wanted.items():
        if headers.get(name) != value:
            raise ProtocolError(_HEADERS_DIFFER, f"the header {name} is not what the message says")


def _answered(message: Mapping[str, Any], identity: str | int, version: str, tools: Mapping[str, Tool]) -> Reply | Call:
    method, params = message["method"], _object(message.get("params"))
    about = {"capabilities": {"tools": {}}, "instructions": _INSTRUCTIONS}
    if method == "tools/call":
        return _call(params, identity, version, tools)
    if method == "tools/list":
        return _success(identity, {"tools": [tool.described() for tool in tools.values()]}, version, keep=True)
    if method == "server/discover" and version == STATELESS:
        return _success(identity, {"supportedVersions": [*HANDSHAKE, STATELESS], **about}, version, keep=True)
    if method == "initialize" and version != STATELESS:
        asked = params.get("protocolVersion")
        spoken = asked if asked in HANDSHAKE else HANDSHAKE[-1]
        return _success(identity, {"protocolVersion": spoken, "serverInfo": _server(), **about}, version)
    if method == "ping" and version != STATELESS:
        return _success(identity, {}, version)
    raise ProtocolError(_METHOD, f"there is no method {method[:100]}")


def _call(params: Mapping[str, Any], identity: str | int, version: str, tools: Mapping[str, Tool]) -> Call | Reply:
    tool = tools.get(str(params.get("name")))
    if tool is None:
        raise ProtocolError(_PARAMS, f"there is no tool {str(params.get('name'))[:100]}; there is {', '.join(tools)}")
    try:
        with refused(tool.arguments):
            arguments = tool.given(_object(params.get("arguments")))
    except InvalidInput as error:
        return failure_of(Call(identity, version, tool, Arguments()), error)
    return Call(identity, version, tool, arguments, _token(_object(params.get("_meta")).get("progressToken")))


def _success(identity: str | int, result: dict[str, Any], version: str, *, keep: bool = False) -> Reply:
    if version == STATELESS:
        result |= {"resultType": "complete", "_meta": {f"{_META}serverInfo": _server()}}
        result |= {"ttlMs": _LIST_MS, "cacheScope": "public"} if keep else {}
    return Reply({"jsonrpc": "2.0", "id": identity, "result": result})


def _error(identity: str | int | None, error: dict[str, Any], version: str) -> Reply:
    """Return an error; older clients get it with status 200, since the transport succeeded."""
    status = _STATUS.get(error["code"], 200) if version == STATELESS else 200
    return Reply({"jsonrpc": "2.0", "id": identity, "error": error}, status)


def _server() -> dict[str, str]:
    return {"name": "offload-advisor", "title": "Offload Advisor", "version": __version__}


def _token(value: object) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
