"""The rooms of docs/architecture.md: imports go one way, the engine is pure, files and functions stay short."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_FILE, MAX_FUNCTION = 500, 60

# What each room may import of ours. These lie outside the rooms.
OBSERVED = ("service.counting", "service.logs", "service.metrics")
COMMON = ("service.errors", "service.settings", "service.structs", *OBSERVED)
ALLOWED = {
    "service.engine": {"service.engine"},
    "service.wire": {"service.wire", "service.engine", "service.structs"},
    "service.outgoing": {"service.outgoing", *OBSERVED},
    "service.hub": {
        "service.hub", "service.outgoing", "service.engine", "service.wire", "service.scratch", *OBSERVED,
    },
    "service.store": {"service.store", "service.engine", "service.wire", *COMMON},
    "service.queue": {"service.queue", "service.engine", "service.wire", "service.scratch", *COMMON},
    "service.flows": {
        "service.flows", "service.store", "service.hub", "service.queue", "service.engine", "service.wire",
        "service.outgoing", "service.scratch", *COMMON,
    },
    # service.detect and service.measure import the engine only: the machine is looked at in one place.
    "workers.agent": {
        "workers.agent", "service.engine", "service.wire", "service.detect", "service.measure", "service.logs",
        "service.scratch", "service.structs",
    },
    "service.bots": {
        "service.bots", "service.flows", "service.outgoing", "service.engine", "service.wire", *COMMON,
    },
    "workers": {
        "workers", "service.bots", "service.web.http.limits",
        "service.flows", "service.queue", "service.engine", "service.wire", *COMMON,
    },
}  # fmt: skip
PURE = {"msgspec", "regex", "yaml"}  # yaml is what msgspec.yaml reads with


def sources() -> Iterator[tuple[str, Path]]:
    for top in ("service", "workers"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def no_tree_is_left() -> Iterator[None]:
    """The trees of all files take 150 MB, which no other test needs."""
    yield
    tree_of.cache_clear()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement in a tree, however deep: without their expressions, which are most of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@cache
def imports(path: Path) -> list[str]:
    found = []
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def room_of(module: str) -> str | None:
    return next((room for room in ALLOWED if module == room or module.startswith(room + ".")), None)


def test_imports_go_one_way() -> None:
    wrong = []
    for module, path in sources():
        room = room_of(module)
        for name in imports(path):
            ours = name.split(".")[0] in ("service", "workers") and name not in ("service",)
            if room and ours and not any(name == r or name.startswith(r + ".") for r in ALLOWED[room]):
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_the_parts_of_the_planner_import_those_before_them_only() -> None:
    parts = ["pricing", "ranking", "search", "explaining"]
    wrong = [
        f"{module} imports {name}"
        for module, path in sources()
        if module.startswith("service.engine.planner.")
        for name in imports(path)
        if name.startswith("service.engine.planner.")
        and parts.index(name.split(".")[3]) > parts.index(module.split(".")[3])
    ]
    assert not wrong


def test_the_engine_imports_the_standard_library_msgspec_regex_and_yaml_only() -> None:
    wrong = []
    for module, path in sources():
        if room_of(module) not in ("service.engine", "service.wire"):
            continue
        for name in imports(path):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names | PURE | {"service"}:
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_the_agent_imports_the_standard_library_and_its_own_extra_only() -> None:
    extra = {"msgspec", "httpx", "nacl", "psutil", "pynvml", "cpuinfo"}
    wrong = [
        f"{module} imports {name}"
        for module, path in sources()
        if room_of(module) == "workers.agent"
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | extra | {"service", "workers"}
    ]
    assert not wrong


def test_the_engine_does_no_input_output_and_reads_no_clock() -> None:
    banned = {
        "os",
        "io",
        "socket",
        "time",
        "datetime",
        "random",
        "subprocess",
        "pathlib",
        "asyncio",
        "threading",
        "secrets",
    }
    wrong = [
        f"{module} imports {name}"
        for module, path in sources()
        if room_of(module) == "service.engine"
        for name in imports(path)
        if name.split(".")[0] in banned
    ]
    assert not wrong


def imports_at_load(path: Path, modules: set[str]) -> Iterator[str]:
    """Which of `modules` a module imports when it is loaded: not within functions, and not for type checkers alone."""
    waiting: list[ast.AST] = [tree_of(path)]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from {name if name in modules else node.module for name in names} & modules
            waiting.append(node)


def test_no_modules_of_the_engine_import_each_other_in_a_circle() -> None:
    paths = {module: path for module, path in sources() if module.startswith("service.engine")}
    graph = {module: set(imports_at_load(path, set(paths))) for module, path in paths.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as found:
        pytest.fail(" imports ".join(found.args[1]))


def test_the_engine_loads_with_everything_else_blocked() -> None:
    blocked = [
        "litestar",
        "redis",
        "rq",
        "sqlalchemy",
        "httpx",
        "httpx2",
        "huggingface_hub",
        "numpy",
        "gguf",
        "asyncio",
    ]
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        "import service.engine.advise, service.wire.advice.advice\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# What makes connections, and who may: the one client of what goes out, and those of machines that ask us or are ours.
GOES_OUT = re.compile(
    r"\bhttpx2?\.(?:(?:Async)?(?:Client|HTTPTransport)|get|post|put|patch|delete|head|options|request|stream)\("
    r"|\b(?:urlopen|create_connection|open_connection|connect_tcp)\("
    r"|^\s*(?:import|from) (?:requests|aiohttp|urllib3|http\.client|ftplib|smtplib|websockets|slack_sdk)\b"
    r"|^\s*from httpx2? import",
    re.MULTILINE,
)
OTHERS_CLIENTS = ("workers.agent", "service.cli.remote", "service.cli.watch", "service.outgoing")


def test_everything_that_goes_out_goes_through_one_client() -> None:
    wrong = [
        f"{module}: {found[0].strip()}"
        for module, path in sources()
        if not module.startswith(OTHERS_CLIENTS)
        for found in GOES_OUT.finditer(path.read_text())
    ]
    assert not wrong


def test_files_and_functions_are_short_enough_to_see() -> None:
    long = []
    for module, path in sources():
        if "migrations" in path.parts:
            continue
        text = path.read_text()
        if text.count("\n") > MAX_FILE:
            long.append(f"{module} has over {MAX_FILE} lines")
        long += [
            f"{module}.{node.name} is too long"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION
        ]
    assert not long


def test_every_public_function_of_the_engine_says_what_it_returns() -> None:
    bare = [
        f"{module}.{node.name}"
        for module, path in sources()
        if module.startswith("service.engine")
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not (isinstance(node, ast.ClassDef) and module == "service.engine.errors")
    ]
    assert not bare
