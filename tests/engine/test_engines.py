"""The engines' folders: each is found by its name, and its tables hold what is asked of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from scripts.engine_branches import branches, count
from service.engine.config import ENGINES, Engine
from service.engine.engines import all_engines, engine_rules, engine_spec
from service.engine.engines.tables import Architectures

FOLDER = Path(__file__).parent.parent.parent / "service" / "engine" / "engines"


def test_an_engine_is_found_by_its_name() -> None:
    assert [one.name for one in all_engines()] == list(ENGINES)


@cache
def facts_read() -> set[object]:
    """Every fact that the source asks architectures for."""
    return {
        node.args[0].value
        for path in FOLDER.parent.rglob("*.py")
        if "having" in (text := path.read_text())  # parsing every file takes a second
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "having"
        if isinstance(node.args[0], ast.Constant)
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_every_fact_of_the_architectures_is_read_and_every_one_that_is_read_is_there(engine: Engine) -> None:
    package = f"service.engine.engines.{engine.replace('.', '_')}"
    architectures = Architectures(package)
    read = facts_read()

    assert set(architectures.facts) <= read
    assert read <= {fact for one in all_engines() for fact in one.architectures.facts}
    assert all(architectures.having(fact) <= architectures.known for fact in architectures.facts)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_programs_of_an_engine_have_options(engine: Engine) -> None:
    spec = engine_spec(engine)

    assert set(spec.programs.values()) <= set(spec.commands.options.programs)
    assert set(spec.memory.together) < set(spec.memory.split_modes)
    assert engine_rules(engine)


def test_generic_code_asks_the_engine_s_spec_and_not_its_name() -> None:
    found = count()

    assert len(found) <= 2, found
    assert sum(map(len, found.values())) <= 5, found


def test_a_branch_on_the_engine_is_counted_in_every_dress() -> None:
    source = """
LLAMA: Engine = "llama.cpp"
TABLE = {"ik_llama.cpp": 1}
def f(engine: Literal["ik_llama.cpp"], case: Case) -> None:
    "ik_llama.cpp, llama.cpp"
    if engine == LLAMA or case.ik:
        print("ik_llama.cpp does it")
"""
    assert {what for _, what in branches(source)} == {"'llama.cpp'", "'ik_llama.cpp'", "LLAMA", ".ik"}
