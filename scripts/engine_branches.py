"""Count where the engine package depends on which engine it is: `python scripts/engine_branches.py`.

What only one engine does belongs in its folder (`service/engine/engines/`), behind `EngineSpec`. Outside of it are
counted, by the syntax tree: the engines' names as literals, except in docstrings, messages and types; constants that
hold one, and dictionaries and sets keyed by them; properties and variables that say which engine it is.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).parent.parent / "service" / "engine"
NAMES = frozenset({"ik_llama.cpp", "llama.cpp"})
# What tells one engine from the other without its name: properties, variables, columns of the type table.
TELLING = frozenset(
    {"ik", "is_ik", "is_llama", "is_mainline", "mainline", "cuda_ik", "cuda_mainline", "cuda_mmq_ik"}
)  # fmt: skip


def branches(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) for each place in a module that depends on which engine it is."""
    tree = ast.parse(source)
    held = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        if node.value.value in NAMES
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    types = {id(part) for node in ast.walk(tree) for part in _type_parts(node)}
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in held | TELLING:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in TELLING:
            yield node.lineno, f".{node.attr}"


def _type_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that are no branches: `Engine: TypeAlias = Literal[…]`, annotations, and the list of all
    engines."""
    if (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in ("Engine", "ENGINES")
    ):
        yield from ast.walk(node)
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield from ast.walk(node.annotation)


def count() -> dict[str, list[tuple[int, str]]]:
    """Return the places by file, relative to the engine package, in all files outside the engines' folders."""
    found = {}
    for path in sorted(ENGINE.rglob("*.py")):
        places = sorted(branches(path.read_text()))
        if places and "engines" not in path.relative_to(ENGINE).parts:
            found[str(path.relative_to(ENGINE))] = places
    return found


def main() -> int:
    found = count()
    for file, places in found.items():
        what = ", ".join(f"{text} x {n}" if n > 1 else text for text, n in Counter(text for _, text in places).items())
        print(f"{len(places):4} {file}:{','.join(str(line) for line, _ in places)}  {what}")
    print(f"{sum(map(len, found.values()))} places in {len(found)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
