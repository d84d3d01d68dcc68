"""The engines: one folder each, with all that is known of that engine, behind the interface of `spec.py`.

Generic code asks an engine's `EngineSpec` and never compares its name. The folders are built on the generic rooms
(graphs, caches, findings), so a folder is loaded when its engine is asked for the first time, never by an import of
this module: imports go from the folders to the generic rooms only.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from service.engine.config import ENGINES, Engine
from service.engine.engines.spec import EngineSpec

if TYPE_CHECKING:
    from service.engine.rules.rule import Rule


def engine_rules(name: Engine) -> tuple[Rule, ...]:
    """Return the findings that are about one engine's commands only: `RULES` of `rules` in its folder."""
    rules: tuple[Rule, ...] = import_module(f"{_folder(name)}.rules").RULES
    return rules


def _folder(name: Engine) -> str:
    return f"{__name__}.{name.replace('.', '_')}"


@cache
def engine_spec(name: Engine) -> EngineSpec:
    """Return what is known of an engine: `SPEC` in `spec.py` of the folder called like it (`.` becomes `_`)."""
    spec: EngineSpec = import_module(f"{_folder(name)}.spec").SPEC
    return spec


def all_engines() -> tuple[EngineSpec, ...]:
    """Return every engine, in the order of `ENGINES`."""
    return tuple(engine_spec(name) for name in ENGINES)
