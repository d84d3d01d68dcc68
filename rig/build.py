"""Build an engine for the rig: python -m rig.build SOURCE [--out DIR] [--programs DIR] [--jobs N].

SOURCE: a source tree of llama.cpp or ik_llama.cpp, or llama-cpp-python's source distribution (.tar.gz), which has
llama.cpp in it. OUT (default ~/.cache/offload-advisor/rig-ENGINE) gets `rig.json`, by which `rig.measure` finds all.
--programs: programs of this very source that are built already, for the CPU (scripts/build_engine.sh); llama.cpp only,
whose back ends are libraries that a program loads. All of ik_llama.cpp is built here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rig.host_code import Toolkit, compile_host, link, toolkit

HERE = Path(__file__).parent
_CACHE_TYPES = ("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16")  # ggml/cmake/common.cmake
_COMPILED = {("F16", "F16"), ("Q4_0", "Q4_0"), ("Q8_0", "Q8_0"), ("BF16", "BF16")}  # GGML_CUDA_FA_QUANTS by default
_BASE = ("ggml.c", "ggml.cpp", "ggml-alloc.c", "ggml-backend.cpp", "ggml-backend-meta.cpp", "ggml-threading.cpp",
         "ggml-quants.c", "ggml-opt.cpp", "gguf.cpp")  # fmt: skip
# What decides before the first launch: which operations run, which kernels are fused, what is reserved for them.
_DECIDES = ("ggml-cuda", "fattn", "mmq", "mmf", "mmvf", "mmvq", "topk-moe", "allreduce", "mmid", "cumsum", "ssm-scan",
            "ssm-conv", "argsort", "top-k", "concat", "cpy", "softmax", "gated_delta_net", "lightning-indexer",
            "dsv4-hc")  # fmt: skip
_IK_DECIDES = ("fattn", "fattn-vec-f16", "fattn-vec-f32", "fattn-tile-f16", "fattn-tile-f32", "fattn-wmma-f16",
               "fattn-mma-f16", "latent_attn")  # fmt: skip
_QUICK = ("-DCMAKE_BUILD_TYPE=None", "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF", "-DLLAMA_BUILD_TESTS=OFF")
_SETTING = re.compile(r'set\s*\((GGML_(?:CUDA|SCHED)_\w+)\s+"(\d+)"\s+CACHE')


def unpacked(source: Path, out: Path) -> Path:
    """Return the source tree; of a source distribution that in its vendor/llama.cpp, unpacked into `out`."""
    if source.is_dir():
        vendor = source / "vendor" / "llama.cpp"
        return vendor if (vendor / "CMakeLists.txt").exists() else source
    with tarfile.open(source) as archive:
        archive.extractall(out / "source", filter="data")
    return next((out / "source").glob("*/vendor/llama.cpp"))


def engine_of(source: Path) -> str:
    """Return the engine that a source tree is of: ik_llama.cpp has its CPU kernels in ggml/src/iqk."""
    return "ik_llama.cpp" if (source / "ggml" / "src" / "iqk").exists() else "llama.cpp"


def _definitions() -> list[str]:
    pairs = itertools.product(_CACHE_TYPES, repeat=2)
    flash = [f"-DGGML_CUDA_FA_{k}_{v}={int((k, v) in _COMPILED)}" for k, v in pairs]
    return ["-D_GNU_SOURCE", "-DGGML_CUDA_USE_GRAPHS", "-DGGML_CUDA_PEER_MAX_BATCH_SIZE=128",
            "-DGGML_SCHED_MAX_COPIES=4",
            '-DGGML_CUDA_FA_QUANTS="q4_0-q4_0,q8_0-q8_0,f16-f16,bf16-bf16"', *flash]  # fmt: skip


def _base_objects(ggml: Path, out: Path, defines: Sequence[str]) -> Iterator[Path]:
    """ggml's own code once more, so that the back end needs nothing of the program that loads it."""
    for source in (ggml / "src" / name for name in _BASE):
        target = out / f"{source.name}.o"
        if source.exists() and not target.exists():
            compiler = ["gcc"] if source.suffix == ".c" else ["g++", "-std=c++17"]
            told = [*defines, f"-I{HERE / 'include'}", f"-I{ggml}/include", f"-I{ggml}/src"]
            words = [*compiler, "-c", "-fPIC", "-O0", "-w", *told, str(source)]
            subprocess.run([*words, "-o", str(target)], check=True)
        if target.exists():
            yield target


def _shared(name: str, out: Path, *flags: str) -> Path:
    target = out / f"{name}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", *flags, str(HERE / f"{name}.c"), "-o", str(target), "-ldl"],
                   check=True)  # fmt: skip
    return target


def llama_cpp(source: Path, out: Path, tools: Toolkit, programs: Path | None, jobs: int) -> dict[str, str]:
    """Build llama.cpp: its programs for the CPU, and the CUDA back end as a library that they load."""
    ggml, objects = source / "ggml", out / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    include = [f"-I{ggml}/include", f"-I{ggml}/src", f"-I{ggml}/src/ggml-cuda"]
    defines = [*_definitions(), "-DGGML_BACKEND_DL", "-DGGML_BACKEND_BUILD", "-DGGML_BACKEND_SHARED"]
    files = [path for name in _DECIDES if (path := ggml / "src" / "ggml-cuda" / f"{name}.cu").exists()]
    with ThreadPoolExecutor(jobs) as pool:
        made = pool.map(lambda f: compile_host(f, objects / f"{f.stem}.cu.o", tools, [*defines, *include]), files)
        parts = [*made, *_base_objects(ggml, objects, ["-D_GNU_SOURCE", "-DGGML_SCHED_MAX_COPIES=4"])]
    backend = link([*parts, _runtime(objects, tools)], out / "backend.so")
    if programs is None:
        wanted = ["llama-server", "llama-bench", "llama-fit-params"]
        programs = _cmake(source, out / "build", jobs, wanted, "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
                          "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
                          "-DLLAMA_OPENSSL=OFF", "-DGGML_SCHED_MAX_COPIES=4")  # fmt: skip
    return {"programs": str(programs), "backend": str(backend)}


def ik_llama_cpp(source: Path, out: Path, tools: Toolkit, jobs: int) -> dict[str, str]:
    """Build ik_llama.cpp as a CUDA build is, but that its back end is missing; and that, as a library to preload.

    The attention kernels of the CPU are left out: they decide nothing, and take longest to compile.
    """
    ggml, objects = source / "ggml", out / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    settings = _SETTING.findall((ggml / "CMakeLists.txt").read_text())
    defines = ["-D_GNU_SOURCE", "-DGGML_USE_CUDA", "-DGGML_CUDA_USE_GRAPHS", *(f"-D{k}={v}" for k, v in settings)]
    include = [f"-I{ggml}/include", f"-I{ggml}/src", f"-I{ggml}/src/ggml-cuda"]
    files = [ggml / "src" / "ggml-cuda.cu"]
    files += [path for name in _IK_DECIDES if (path := ggml / "src" / "ggml-cuda" / f"{name}.cu").exists()]
    with ThreadPoolExecutor(jobs) as pool:
        made = pool.map(lambda f: compile_host(f, objects / f"{f.stem}.cu.o", tools, [*defines, *include]), files)
        parts = [*made, _runtime(objects, tools)]
    programs = _cmake(source, out / "build", jobs, ["llama-sweep-bench", "llama-server"], "-DBUILD_SHARED_LIBS=ON",
                      "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON",
                      "-DGGML_IQK_FLASH_ATTENTION=OFF", "-DCMAKE_C_FLAGS=-DGGML_USE_CUDA",
                      "-DCMAKE_CXX_FLAGS=-DGGML_USE_CUDA",
                      "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-all")  # fmt: skip
    backend = link(parts, out / "backend.so", uses=next((out / "build").rglob("libggml.so")))
    return {"programs": str(programs), "backend": str(backend)}


def _runtime(objects: Path, tools: Toolkit) -> Path:
    target = objects / "runtime.o"
    words = ["gcc", "-c", "-fPIC", "-O1", "-w", f"-I{tools.include}", str(HERE / "runtime.c"), "-o", str(target)]
    subprocess.run(words, check=True)
    return target


def _cmake(source: Path, build: Path, jobs: int, targets: Sequence[str], *options: str) -> Path:
    subprocess.run(["cmake", "-S", str(source), "-B", str(build), *_QUICK, *options], check=True, stdout=sys.stderr)
    words = ["cmake", "--build", str(build), "--parallel", str(jobs), "--target", *targets]
    subprocess.run(words, check=True, stdout=sys.stderr)
    return build / "bin"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offload-advisor"
    source = unpacked(asked.source, asked.out or cache)
    engine = engine_of(source)
    out: Path = asked.out or cache / f"rig-{engine}"
    out.mkdir(parents=True, exist_ok=True)
    tools = toolkit(cache)
    if engine == "llama.cpp":
        found = llama_cpp(source.resolve(), out, tools, asked.programs, asked.jobs)
    else:
        found = ik_llama_cpp(source.resolve(), out, tools, asked.jobs)
    found |= {"engine": engine, "source": str(source.resolve()), "preload": str(_shared("preload", out))}
    (out / "rig.json").write_text(json.dumps(found, indent=1))
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
