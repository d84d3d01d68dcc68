"""The engine keeps nothing of a request: what it works out about models goes when they go."""

from __future__ import annotations

import ast
import gc
import re
import weakref
from pathlib import Path

import service.engine
from service.engine.advise import VariantModel, advise
from service.engine.goal import Constraints, GoalRequest
from service.engine.memory.graphs import GraphCache, graphs_of
from service.engine.model import build_model
from service.engine.planner.explaining.commands import Files
from tests import rigs
from tests.models import build_header

ENGINE = Path(service.engine.__file__).parent


def advised_graphs() -> weakref.ref[GraphCache]:
    """The graphs of an advice on models that only this function holds."""
    files = Files("a/b", "0" * 40, ("a.gguf",))
    variants = [VariantModel(mix, files, build_model(build_header("Qwen3-0.6B", mix))) for mix in ("q8_0", "q4_k_m")]
    assert advise(variants, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints()).configs
    first, second = (graphs_of(variant.model) for variant in variants)
    assert first is second
    return weakref.ref(first)


def test_an_advice_leaves_no_graph_and_no_model_behind() -> None:
    gc.disable()  # so that all of it is young, and nothing of what other tests made has to be looked at
    try:
        graphs = advised_graphs()
        gc.collect(0)
    finally:
        gc.enable()

    assert graphs() is None


def is_empty_container(value: ast.expr | None) -> bool:
    """Whether this makes something to be filled later."""
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func)
        return not value.args and (name in ("dict", "list", "set", "WeakKeyDictionary") or name.endswith("Cache"))
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def keeps_models(function: ast.stmt) -> bool:
    """Whether a function of the whole process remembers answers by model, placement or graph."""
    if not isinstance(function, ast.FunctionDef):
        return False
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    kinds = {"Model", "Placement", "Graph", "Same", "Header"}
    words = {word for a in function.args.args if a.annotation for word in re.findall(r"\w+", ast.unparse(a.annotation))}
    return any(re.match(r"(lru_)?cache\b", name) for name in decorators) and bool(words & kinds)


def test_no_module_of_the_engine_has_a_cache_that_a_request_fills() -> None:
    found = []
    for path in sorted(ENGINE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            filled = isinstance(node, ast.Assign | ast.AnnAssign) and is_empty_container(node.value)
            if filled or keeps_models(node):
                found.append(f"{path.relative_to(ENGINE)}:{node.lineno}")

    assert found == []
