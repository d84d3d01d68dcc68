"""What a source tree has that the known build has not: python -m rig.drift SOURCE [--before SOURCE] [--write FILE].

SOURCE: a tree of llama.cpp or ik_llama.cpp. Options, their defaults, architectures and tensor types are held to the
tables of the engine's folder; published commands to the tree's parser. --before: the tree of the known build; then the
lines that our modules cite, and the graph builders that they describe, are compared too. Its output is a list of work.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rig.build import engine_of
from service.engine.commands.parse import parse
from service.engine.commands.tables import RETIRED, known_options, newer_options
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.ggml_types import all_types

ROOT = Path(__file__).parent.parent
_PARSERS = {"llama.cpp": "common/arg.cpp", "ik_llama.cpp": "common/common.cpp"}
_COMPARED = re.compile(r'arg == "(--?[A-Za-z][\w-]*)"')  # ik_llama.cpp
_LISTED = re.compile(r'^\s*\{((?:"-[^"]*",?\s*)+)\}', re.M)  # llama.cpp, of each add_opt
_NAME = re.compile(r'"(--?[A-Za-z][\w.-]*)"')
_ARCHITECTURE = re.compile(r'\{\s*(LLM_ARCH_\w+),\s*"([^"(]+)"')
_TYPE = re.compile(r'\[GGML_TYPE_\w+\]\s*=\s*\{[^}]*?\.type_name\s*=\s*"([^"]+)"')
_CITATION = re.compile(r"((?:src|common|ggml|tools|examples|include)/[\w./-]+\.(?:cpp|cuh?|h|c)):(\d+)(?:-(\d+))?")
_NAMED_ONLY = {"gptj"}  # both engines know the name and its rope, and load no such model
_README_ROW = re.compile(r"^\| `(-[^`]+)` \| (.*) \|$", re.M)
_DEFAULT = re.compile(r"\(default: ([^,)<]+)")


def options_of_tree(engine: Engine, source: Path) -> set[str]:
    """Return the options of the server and its kin: the words that the parser compares with, or lists."""
    text = (source / _PARSERS[engine]).read_text()
    if engine == "ik_llama.cpp":
        return set(_COMPARED.findall(text))
    return {name for row in _LISTED.findall(text) for name in _NAME.findall(row)}


def documented(source: Path) -> dict[str, str]:
    """Return the default of each option of llama-server by its generated list (tools/server/README.md)."""
    readme = source / "tools" / "server" / "README.md"
    found = {}
    for names, text in _README_ROW.findall(readme.read_text()) if readme.exists() else ():
        default = _DEFAULT.search(text)
        for name in re.findall(r"--?[A-Za-z][\w.-]*", names):
            found[name] = default[1].strip() if default else ""
    return found


def names_in(source: Path, pattern: re.Pattern[str], *paths: str) -> set[Any]:
    """Return what a pattern finds in the files of a tree that exist: a text each, or one for each group."""
    return {name for path in paths if (source / path).exists() for name in pattern.findall((source / path).read_text())}


def options(engine: Engine, source: Path, before: Path | None) -> Iterator[str]:
    """Yield options that came, went, or have another default."""
    parsed, listed = options_of_tree(engine, source), set(documented(source))
    there, known = parsed | listed, set(known_options(engine, "llama-server"))
    newer = newer_options(engine, "llama-server")
    old = (options_of_tree(engine, before) | set(documented(before))) if before else known
    for name in sorted((listed or parsed) - old - known - RETIRED.keys()):
        noted = " (a note already: `newer` of options.json)" if name in newer else ""
        yield f"option {name} is new{noted}"
    yield from (f"option {name} is gone" for name in sorted((known & old) - there))
    if before:
        now, then = documented(source), documented(before)
        for name in sorted(now.keys() & then.keys()):
            if now[name] != then[name]:
                yield f"option {name} has another default: {then[name] or 'none'} -> {now[name] or 'none'}"


def architectures(engine: Engine, source: Path) -> Iterator[str]:
    """Yield architectures that the tree loads and our table lacks, and those that are gone."""
    text = "".join(path.read_text() for path in (source / "src").rglob("*.cpp") if path.name != "llama-arch.cpp")
    named = names_in(source, _ARCHITECTURE, "src/llama-arch.cpp")
    there = {name for enum, name in named if re.search(rf"\b{enum}\b", text)} - _NAMED_ONLY
    known = engine_spec(engine).architectures.known
    yield from (f"architecture {name} is new" for name in sorted(there - known) if name != "unknown")
    yield from (f"architecture {name} is gone" for name in sorted(known - there) if there)


def types(source: Path) -> Iterator[str]:
    """Yield tensor types that our table lacks."""
    there = names_in(source, _TYPE, "ggml/src/ggml.c")
    known = {word.lower() for one in all_types() for word in (one.name, *one.note.replace(";", " ").split())}
    yield from (f"tensor type {name} is new" for name in sorted(there) if name.lower() not in known)


def citations(engine: Engine) -> Iterator[tuple[str, str, int, int]]:
    """Yield our file, and path, first and last line that it cites of the engine's sources."""
    folder = ROOT / "service" / "engine" / "engines" / engine.replace(".", "_")
    for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.json"))):
        for cited, first, last in _CITATION.findall(path.read_text()):
            yield str(path.relative_to(ROOT)), cited, int(first), int(last or first)


def cited_lines(engine: Engine, source: Path, before: Path) -> Iterator[str]:
    """Yield citations whose lines are nowhere in the new file, or moved; and files that are gone."""
    for ours, cited, first, last in dict.fromkeys(citations(engine)):
        old, new = before / cited, source / cited
        if not old.exists():
            yield f"{ours} cites {cited}:{first}: the known build has no such file"
            continue
        if not new.exists():
            yield f"{ours} cites {cited}:{first}: the file is gone"
            continue
        lines = [line.strip() for line in old.read_text().splitlines()[first - 1 : last]]
        now = [line.strip() for line in new.read_text().splitlines()]
        if now[first - 1 : last] == lines:
            continue
        places = [i + 1 for i in range(len(now)) if now[i : i + len(lines)] == lines]
        if not places:
            yield f"{ours} cites {cited}:{first}: changed, it was `{lines[0][:80] if lines else ''}`"
        elif len(places) == 1:
            yield f"{ours} cites {cited}:{first}: moved to line {places[0]}"


def builders(source: Path, before: Path) -> Iterator[str]:
    """Yield graph builders that changed, came or went."""
    for folder in ("src/models", "src/graphs"):
        old = {path.name: path for path in (before / folder).glob("*.cpp")}
        new = {path.name: path for path in (source / folder).glob("*.cpp")}
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new:
                yield f"graph builder {folder}/{name} is {'new' if name not in old else 'gone'}"
            elif old[name].read_bytes() != new[name].read_bytes():
                yield f"graph builder {folder}/{name} changed"


def refused(engine: Engine, source: Path) -> Iterator[str]:
    """Yield options of published commands that the tree's parser lacks, and our tables call right."""
    there = options_of_tree(engine, source) | set(documented(source))
    used: dict[str, int] = {}
    for line in (ROOT / "tests" / "data" / "published_commands.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("engine") != engine:
            continue
        parsed = parse(row["command"], engine)
        for name in set(parsed.used) if parsed.program != "llama-bench" else ():
            if name in known_options(engine, parsed.program) and name not in there:
                used[name] = used.get(name, 0) + 1
    yield from (f"{name}, in {n} published commands, is refused by the new parser" for name, n in sorted(used.items()))


def report(source: Path, before: Path | None) -> list[str]:
    """Return the list of work, a line each."""
    engine: Engine = engine_of(source)  # type: ignore[assignment]
    found = [*options(engine, source, before), *architectures(engine, source), *types(source)]
    if before:
        found += [*cited_lines(engine, source, before), *builders(source, before)]
    return [*found, *refused(engine, source)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    lines = report(asked.source, asked.before)
    title = f"{engine_of(asked.source)}: {len(lines)} things to look at"
    text = "\n".join([title, *lines, ""])
    sys.stdout.write(text)
    if asked.write:
        asked.write.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
