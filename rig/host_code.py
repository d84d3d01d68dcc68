"""CUDA sources compiled for the host alone: preprocessed, split by cudafe++, compiled by g++. No device code is made.

A launch becomes a call of cudaLaunchKernel, which the rig's runtime takes for the end of the measurement. Of the
toolkit only cudafe++ and headers are used: of an installed one, or of the packages on PyPI that `PACKAGES` names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-runtime==13.0.96",
            "nvidia-cuda-cccl==13.0.85")  # fmt: skip
INCLUDE = Path(__file__).parent / "include"
_STANDARD = ("-std=c++17", "-m64")
_NVCC = ("-D__CUDACC__", "-D__NVCC__", "-D__NVCC_DIAG_PRAGMA_SUPPORT__=1", "-D__CUDACC_DEVICE_ATOMIC_BUILTINS__=1")
_ARCHITECTURE = ("-D__CUDA_ARCH_LIST__=890",)


class Toolkit(NamedTuple):
    """Where cudafe++ and the headers are, and the version that the headers are told."""

    cudafe: Path
    include: Path
    version: tuple[int, int, int]

    @property
    def flags(self) -> list[str]:
        """What finds the headers; cuBLAS is the rig's own."""
        return [f"-I{INCLUDE}", f"-I{self.include}", "-isystem", str(self.include / "cccl")]


def toolkit(cache: Path) -> Toolkit:
    """Return the toolkit of CUDA_HOME or /usr/local/cuda, else one that pip puts into `cache`.

    Raises FileNotFoundError where neither has cudafe++.
    """
    for home in filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        if (Path(home) / "bin" / "cudafe++").exists():
            return _toolkit(Path(home))
    target = cache / "toolkit"
    if not target.exists():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *PACKAGES]
        subprocess.run(words, check=True)
    found = next(target.rglob("cudafe++"), None)
    if found is None:
        raise FileNotFoundError(f"no cudafe++ in {target}")
    return _toolkit(found.parent.parent)


def _toolkit(home: Path) -> Toolkit:
    header = next(path for path in (home / "include", *home.rglob("include")) if (path / "cuda_runtime.h").exists())
    match = re.search(r"define CUDA_VERSION (\d+)", (header / "cuda.h").read_text())
    number = int(match[1]) if match else 13000
    return Toolkit(home / "bin" / "cudafe++", header, (number // 1000, number % 1000 // 10, 0))


def compile_host(source: Path, target: Path, tools: Toolkit, flags: Sequence[str]) -> Path:
    """Compile the host side of a .cu file to the object `target`, unless that is newer. Returns it.

    Raises CalledProcessError with the compiler's words on stderr.
    """
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return target
    stem, major, minor, patch = target.with_suffix(""), *tools.version
    told = [f"-D__CUDACC_VER_MAJOR__={major}", f"-D__CUDACC_VER_MINOR__={minor}", f"-D__CUDACC_VER_BUILD__={patch}",
            f"-D__CUDA_API_VER_MAJOR__={major}", f"-D__CUDA_API_VER_MINOR__={minor}"]  # fmt: skip
    found = [*flags, *tools.flags]
    read, split, stub = stem.with_suffix(".ii"), stem.with_suffix(".cudafe.cpp"), f"{stem.name}.stub.c"
    _run("g++", *_STANDARD, *_ARCHITECTURE, *_NVCC, *told, *found, "-E", "-x", "c++", "-include", "cuda_runtime.h",
         str(source), "-o", str(read))  # fmt: skip
    _run(str(tools.cudafe), "--c++17", "--static-host-stub", "--device-hidden-visibility", f"--gnu_version={_gnu()}",
         "--orig_src_file_name", source.name, "--orig_src_path_name", str(source), "--allow_managed",
         "--extended-lambda", "--m64", "--parse_templates", "--gen_c_file_name", str(split), "--stub_file_name", stub,
         "--gen_module_id_file", "--module_id_file_name", str(stem.with_suffix(".id")), str(read))  # fmt: skip
    (stem.parent / stub).touch()  # what the device compiler would write; without kernels there is nothing in it
    _run("g++", *_STANDARD, *_ARCHITECTURE, "-D__CUDA_ARCH__=890", "-DCUDA_DOUBLE_MATH_FUNCTIONS", "-fPIC", "-O0", "-w",
         "-c", "-x", "c++", *found, f"-I{stem.parent}", str(split), "-o", str(target))  # fmt: skip
    read.unlink()
    split.unlink()
    return target


def _gnu() -> str:
    done = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True)
    major, minor, patch = map(int, done.stdout.strip().split("."))
    return str(major * 10000 + minor * 100 + patch)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write((done.stdout + done.stderr)[-4000:])
        raise subprocess.CalledProcessError(done.returncode, words[0])


def unresolved(library: Path) -> tuple[list[str], list[str]]:
    """Return the symbols that a shared object lacks and no system library has: CUDA's own, and the rest."""
    done = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in done.stdout.splitlines() if " U " in line and "@" not in line]
    cuda = [name for name in names if re.match(r"(__)?cu(da)?[A-Z]", name)]
    return cuda, sorted(set(names) - set(cuda))


def left_out(succeed: Sequence[str], stop: Sequence[str], target: Path) -> Path:
    """Make the object `target`: functions that do nothing and succeed, and those that end the measurement."""
    lines = [".text"]
    for names, body in ((succeed, "xorl %eax, %eax\n ret"), (stop, "jmp rig_stop@PLT")):
        lines += [f".globl {name}\n.type {name}, @function\n{name}:" for name in names]
        lines.append(body)
    source = target.with_suffix(".s")
    source.write_text("\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""]))
    _run("gcc", "-c", str(source), "-o", str(target))
    return target


def link(objects: Sequence[Path], target: Path, uses: Path | None = None) -> Path:
    """Link a shared object that needs system libraries, and what the library `uses` has. The rest is left out.

    Of the rest, CUDA's own functions succeed and do nothing; any other ends the measurement, as `left_out` says.
    """
    words = ["g++", "-shared", "-o", str(target), *map(str, objects), "-Wl,-Bsymbolic,--unresolved-symbols=ignore-all"]
    _run(*words)
    cuda, others = unresolved(target)
    missing = sorted(set(others) - (_defined(uses) if uses else set()))
    _run(*words, str(left_out(cuda, missing, target.with_suffix(".left_out.o"))), "-ldl", "-lpthread")
    return target


def _defined(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}
