"""The commands of a page, as a shell reads them, and what is wrong with each. Nothing is run.

A shell without any program reads the blocks: each command that it does not find is written down with its words, so
quoting, folding, pipes, `$(…)` and variables are its own. What a command would print is the word ID.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import pkgutil
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from service import wire
from service.cli import command_line
from service.cli.lazy import LazyParser
from service.engine.catalogue import resolve
from service.engine.errors import AdvisorError
from service.engine.hardware_text import parse_hardware
from tests.doc_blocks.blocks import ROOT, Block

Words = list[str]
_ELSEWHERE = re.compile(r"(?<=>)(\s*)/[\w./-]+")  # a file that a block would write outside of its folder
_PROGRAM = re.compile(
    r"(?m)(^\s*|[|;&(]\s*)/[\w./-]*/(?=[\w.-])"
)  # a program by its whole path, which a shell would run
_OURS = re.compile(r"(?<![\w/])[\w./-]*\bvenv/bin/(?=\w)")  # the programs of a virtual environment, by their names
_SERVICES = {"", "127.0.0.1:8000", "advisor.example"}
_PAGES_OF_THE_SITE = re.compile(r"/(|docs|health|ready|metrics|leaderboard|submit|accuracy|hosts|openapi\.json|mcp)")
_ALONE = {"-s", "-S", "-f", "-i", "-N", "-L", "-O", "-G", "--fail", "--fail-with-body", "--silent", "--no-buffer"}
_VALUED = {"-X", "-H", "-d", "-o", "-w", "-b", "-m", "--json", "--data", "--data-binary", "--data-urlencode"}
_SENDING = {"-d", "--json", "--data", "--data-binary", "--data-urlencode"}
_PROGRAMS = """
awk bash cat chmod cp cut date docker echo free git grep head hf install jq kill llama-bench llama-server
llama-sweep-bench ls lscpu mkdir mv nvidia-modprobe nvidia-smi openapi-python-client openssl pg_dump pg_restore
podman psql rm sed sleep sort source systemctl tail tar tee useradd uv
"""
KNOWN = frozenset(_PROGRAMS.split())
_PRELUDE = r"""
command_not_found_handle() { local all; printf -v all '%s\037' "$@"; printf '%s\036' "$all" >&3; printf ID; }
source() { command_not_found_handle source "$@"; }
kill() { command_not_found_handle kill "$@"; }
cd() { :; }
set -u
"""


class Command(NamedTuple):
    """A command of a page: where its block begins, and its words."""

    place: str
    words: Words


def commands_of(blocks: list[Block]) -> list[Command]:
    """Return the commands of a page's `sh` blocks in order. Raises AssertionError where a shell cannot read them."""
    if not blocks:
        return []
    script = _PRELUDE
    for block in blocks:
        text = shlex.quote(_held(block.text))
        unread = f"echo '{block.place}: no shell reads it' >&2"
        script += f"printf '\\035%s\\036' {block.place} >&3\neval {text} || {unread}\nwait\n"  # for what ends in &
    script += "printf '\\035\\036' >&3\n"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as seen:
        shell = subprocess.run(
            [shutil.which("bash") or "bash", "--norc", "-c", f"exec 3>&{seen.fileno()}\n{script}"],
            cwd=folder, env={"PATH": "/nowhere", "HOME": folder}, pass_fds=[seen.fileno()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        seen.seek(0)
        records = seen.read().decode().split("\036")[:-1]
    assert not shell.stderr, shell.stderr
    assert records[-1] == "\035", f"{blocks[0].page.name}: a block ends the shell, and what follows is never run"
    return list(_commands(records))


def _held(text: str) -> str:
    """Return a block whose programs have no path, so that none is found, and which writes in its own folder only."""
    return _ELSEWHERE.sub(r"\1kept", _PROGRAM.sub(r"\1", _OURS.sub("", text)))


def _commands(records: list[str]) -> Iterator[Command]:
    place = ""
    for record in records:
        if record.startswith("\035"):
            place = record[1:]
        else:
            yield Command(place, record.split("\037")[:-1])


def wrong_with(words: Words) -> str | None:
    """Return what is wrong with a command as far as its words say, or None."""
    name, rest = words[0], words[1:]
    if name in KNOWN:
        return None
    check = _CHECKS.get(name)
    return check(rest) if check else f"{name} is no program that the pages may use (tests/doc_blocks/commands.py)"


def _advisor(words: Words) -> str | None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            return _wrong_hardware(getattr(_parser().parse_args(words), "hardware", None))
        except SystemExit as ended:
            return said.getvalue().strip() if ended.code else None


def _wrong_hardware(stated: object) -> str | None:
    """Return what is wrong with a rig where it stands there as text, not in a file or as what a command prints."""
    if not isinstance(stated, str) or stated.startswith(("@", "-", "ID")):
        return None
    try:
        resolve(parse_hardware(stated))
    except AdvisorError as error:
        return f"{stated}: {error}"
    return None


def _make(words: Words) -> str | None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    unknown = {word for word in words if "=" not in word} - targets
    return f"no target of the Makefile: {', '.join(sorted(unknown))}" if unknown else None


def _python(words: Words) -> str | None:
    match words:
        case ["-m", "venv" | "pip", *_] | ["-c", *_]:
            return None
        case ["-m", module, *_]:
            return None if find_spec(module) else f"there is no module {module}"
        case [script, *_] if (ROOT / script).exists():
            return None
    return f"what does python run here: {words}"


def _sh(words: Words) -> str | None:
    return None if words and (ROOT / words[0]).exists() else f"there is no script {words[:1]}"


def _pip(words: Words) -> str | None:
    extras = re.findall(r"offload-advisor\[([\w,]+)\]", " ".join(words))
    project = (ROOT / "pyproject.toml").read_text()
    unknown = [extra for named in extras for extra in named.split(",") if f"\n{extra} = [" not in project]
    return f"no extra of the package: {unknown}" if unknown else None


def _sudo(words: Words) -> str | None:
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] == "-u" else words[1:]
    return wrong_with(words)


class _Call(NamedTuple):
    """What a line of curl asks: a body is "" where there is none, and not JSON where it comes from a file."""

    method: str
    address: str
    body: str


def _curl(words: Words) -> str | None:
    try:
        call = _call(words)
    except ValueError as error:
        return str(error)
    parts = urlsplit(call.address)
    if parts.netloc not in _SERVICES or _PAGES_OF_THE_SITE.fullmatch(parts.path):
        return None
    route = _route(call.method.lower(), parts.path)
    if route is None:
        return f"the service has no {call.method} {parts.path}"
    unknown = parse_qs(parts.query, keep_blank_values=True).keys() - route.parameters
    if unknown:
        return f"{call.method} {parts.path} takes no {', '.join(sorted(unknown))}"
    return _wrong_body(call.body, route) if call.body.startswith("{") else None


def _call(words: Words) -> _Call:
    """Read the words of curl. Raises ValueError with what is wrong with them."""
    method, body, addresses = "", None, []
    rest = iter(words)
    for word in rest:
        short = re.fullmatch(r"-([a-zA-Z]+)", word)
        for flag in [f"-{letter}" for letter in short[1]] if short else [word]:
            if flag in _VALUED:
                value = next(rest, "")
                method, body = value if flag == "-X" else method, value if flag in _SENDING else body
            elif not flag.startswith("-"):
                addresses.append(flag)
            elif flag not in _ALONE:
                raise ValueError(
                    f"{flag} is not an option of curl that the pages may use (tests/doc_blocks/commands.py)"
                )
    if len(addresses) != 1:
        raise ValueError(f"one address, not {addresses}")
    sends = body is not None and "-G" not in words
    return _Call(method or ("POST" if sends else "GET"), addresses[0], body or "")


class _Route(NamedTuple):
    parameters: set[str]
    body: str | None


def _wrong_body(body: str, route: _Route) -> str | None:
    if route.body is None:
        return "takes no body"
    try:
        decoded = msgspec.json.decode(body, type=structs()[route.body])
    except msgspec.MsgspecError as error:
        return str(error)
    return _wrong_hardware(getattr(decoded, "hardware", None))


def _route(method: str, path: str) -> _Route | None:
    found = (routes.get(method) for pattern, routes in _routes() if pattern.fullmatch(path))
    return next(filter(None, found), None)


@cache
def _routes() -> list[tuple[re.Pattern[str], dict[str, _Route]]]:
    """The service's addresses: what matches a path, and by method what may be asked with it."""
    paths = json.loads((ROOT / "openapi/openapi.json").read_text())["paths"]
    found = []
    for path, item in paths.items():
        routes = {method: _route_of(operation) for method, operation in item.items() if "responses" in operation}
        found.append((re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), routes))
    return found


def _route_of(operation: dict[str, Any]) -> _Route:
    queries = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    named = re.search(r"#/components/schemas/(\w+)", json.dumps(content))
    return _Route(queries, named[1] if named else None)


@cache
def structs() -> dict[str, type[msgspec.Struct]]:
    """The Structs of `service.wire` and those that it uses, by name."""
    found = pkgutil.walk_packages(wire.__path__, "service.wire.")
    modules = [importlib.import_module(one.name) for one in found]
    named = [thing for module in modules for thing in vars(module).values() if isinstance(thing, type)]
    return {thing.__name__: thing for thing in named if issubclass(thing, msgspec.Struct)}


_CHECKS: dict[str, Callable[[Words], str | None]] = {
    "advisor": _advisor,
    "curl": _curl,
    "make": _make,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "sh": _sh,
    "sudo": _sudo,
    "systemd-run": _sudo,
}


_parser = cache(command_line)


def wrong_with_mention(text: str) -> str | None:
    """Return what is wrong with a command named in a sentence: it may leave out arguments, but no verb or option."""
    if not text.startswith("advisor"):
        return wrong_with(shlex.split(text)) if "/v1/" in text or "-m" in text else None
    parser, words = _parser(), re.sub(r'"?\$\(.*?\)"?', "ID", text).split()[1:]
    options = set(parser._option_string_actions)
    for word in words:
        verbs: Any = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        if verbs and re.fullmatch("[a-z][a-z-]*", word):
            if word not in verbs:
                return f"advisor has no {word}"
            parser = verbs[word]
            if isinstance(parser, LazyParser):
                parser.load()
            options = set(parser._option_string_actions)
        elif word.startswith("-") and word.partition("=")[0] not in options:
            return f"no option of it: {word}"
    return None
