"""Finds engine builds in the folders that the policy names, and asks each benchmark program what it is.

A program that the policy does not allow is never run, not even for that. An allowed one runs under the same limits as
in a measurement.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.engine.config import Engine
from service.wire.measuring.hosts import MAX_ENGINES, EngineBuild
from workers.agent.local import EngineProgram
from workers.agent.policy import Policy, allows_engine, folder
from workers.agent.process import CannotStart, NotConfined, ProcessLimits, run_engine

SWEEP, BENCH, SERVER = "llama-sweep-bench", "llama-bench", "llama-server"
_SECONDS = 20
_OUTPUT_BYTES = 4 << 20
_MAX_PROGRAM_BYTES = 4 << 30
_MAX_OPTIONS, _MAX_OPTION = 1000, 64

_OPTION = re.compile(r"(?:^|[\s,|\[(])(--?[A-Za-z][\w-]*)")
# `version: 4840 (8337e4cd3)`; llama.cpp since 2026: `version: 0.5.0-dev (build 0, commit 0c1e57098)`.
_VERSION = re.compile(r"^version: ([^\n]{1,160})$", re.MULTILINE)
_COMMIT = re.compile(r"\((?:[^()]*commit )?([0-9a-f]{7,40})\)")
_ELF = b"\x7fELF"
_LIBRARY = re.compile(r"^\s*(\S+) => (/\S+) \(0x", re.MULTILINE)
# A program's libraries, and its loadable parts, tell what it can run on.
_BACKENDS = (
    ("CUDA", re.compile(r"libcudart|libcublas|libcuda\.so|ggml-cuda")),
    ("ROCm", re.compile(r"libamdhip|libhipblas|ggml-hip")),
    ("Vulkan", re.compile(r"libvulkan|ggml-vulkan")),
    ("SYCL", re.compile(r"libsycl|ggml-sycl")),
)


def find_engines(policy: Policy) -> tuple[EngineProgram, ...]:
    """Return the benchmark programs that the policy allows, newest file first, at most MAX_ENGINES."""
    named = dict.fromkeys(path for text in policy.engines.folders for path in programs_in(text))
    programs = sorted(named, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    found = (described(path, policy) for path in programs[:MAX_ENGINES])
    return tuple(program for program in found if program is not None)


def readable_of(path: Path, libraries: Sequence[Path], policy: Policy) -> tuple[Path, ...]:
    """Return the folders a program may read besides the system's: its own, its libraries', and those of the policy."""
    return (path.parent, path.resolve().parent, *libraries, *map(folder, policy.engines.readable))


def program_sha256(path: Path) -> str:
    """Return the hash of a program's file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def programs_in(text: str) -> Iterator[Path]:
    """Yield the benchmark programs in a folder that a policy names.

    llama-sweep-bench is only ik_llama.cpp's; for llama-bench, its help tells the engine.
    """
    for name in (SWEEP, BENCH):
        path = folder(text) / name
        if path.is_file() and os.access(path, os.X_OK) and path.stat().st_size <= _MAX_PROGRAM_BYTES:
            yield path


def described(path: Path, policy: Policy) -> EngineProgram | None:
    """Return what a program says of itself; None if the policy does not allow it, or it belongs to no engine."""
    try:
        sha256 = program_sha256(path)
        if not allows_engine(policy, sha256):
            return None
        libraries = _libraries(path, policy)
        folders = _folders(path, libraries)
        readable = readable_of(path, folders, policy)
        text = _asked(path, ("--help",), readable, policy)
        engine = _engine(path.name, text)
        if engine is None:
            return None
        version = _asked(path, ("--version",), readable, policy)
    except (OSError, CannotStart, NotConfined):
        return None
    said = _VERSION.search(version)
    commit = _COMMIT.search(said[1]) if said else None
    build = EngineBuild(
        engine=engine,
        sha256=sha256,
        version=said[1] if said else None,
        commit=commit[1] if commit else None,
        backends=_backends(libraries, path.parent),
        options=options_of(text),
    )
    return EngineProgram(path=path, build=build, libraries=folders)


def _engine(name: str, text: str) -> Engine | None:
    """Return the engine of a program. We need llama-bench to measure at a depth, which ik_llama.cpp's cannot."""
    if name == SWEEP and "-ub" in text:
        return "ik_llama.cpp"
    if name == SERVER:
        return "ik_llama.cpp" if "-mla" in text else "llama.cpp"
    return "llama.cpp" if "--n-depth" in text else None


def options_of(text: str) -> tuple[str, ...]:
    """Return the options in a help text, each once, in order."""
    found = (name for line in text.splitlines() for name in _OPTION.findall(line) if len(name) <= _MAX_OPTION)
    return tuple(dict.fromkeys(found))[:_MAX_OPTIONS]


def _backends(libraries: Sequence[tuple[str, str]], folder: Path) -> tuple[str, ...]:
    names = [name for name, _ in libraries] + [path.name for path in folder.glob("libggml-*.so")]
    return (*(name for name, of_it in _BACKENDS if any(map(of_it.search, names))), "CPU")


def _libraries(path: Path, policy: Policy) -> list[tuple[str, str]]:
    """Return (name, path) of each library the loader would load, found as ldd(1) does; none for a script, which would
    really run, with all files readable."""
    with path.open("rb") as file:
        if file.read(len(_ELF)) != _ELF:
            return []
    return _LIBRARY.findall(_asked(path, (), (Path("/"),), policy, {"LD_TRACE_LOADED_OBJECTS": "1"}))


def _folders(path: Path, libraries: Sequence[tuple[str, str]]) -> tuple[Path, ...]:
    """Return the folders a program reads from at start, links resolved; for a script, those of its interpreter."""
    found = [Path(where).parent for _, where in libraries] + [Path(where).resolve().parent for _, where in libraries]
    with path.open("rb") as file:
        first = file.readline(512)
    if first.startswith(b"#!"):
        interpreter = Path(os.fsdecode(first[2:].split()[0]))
        found += [one.parent.parent for one in (interpreter, interpreter.resolve()) if one.parent.name == "bin"]
    return tuple(one for one in dict.fromkeys(found) if one != Path("/"))


def _asked(
    path: Path,
    words: Sequence[str],
    readable: Sequence[Path],
    policy: Policy,
    environment: dict[str, str] | None = None,
) -> str:
    """Return a program's output, "" if it hangs. Raises CannotStart, NotConfined."""
    with tempfile.TemporaryDirectory(prefix="advisor-") as scratch:
        limits = ProcessLimits(
            folder=Path(scratch),
            seconds=_SECONDS,
            grace_seconds=1,
            output_bytes=_OUTPUT_BYTES,
            tail_bytes=_OUTPUT_BYTES,
            readable=tuple(readable),
            confined=not policy.allow_unconfined,
        )
        given = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        variables = given | {"LC_ALL": "C.UTF-8", "HOME": scratch, "CUDA_VISIBLE_DEVICES": "-1"} | (environment or {})
        ended = run_engine((str(path), *words), variables, limits, lambda _: None, lambda: None)
    return "" if ended.timed_out or ended.stopped_why else ended.tail.decode(errors="replace")
