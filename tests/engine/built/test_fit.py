"""What `-fit` is computed to choose, against llama-fit-params on devices that exist by name and free memory only.

The cards hold a sixth of the model to a third more than all of it, in one to three parts. FIT_RUNS: how many cases.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import msgspec
import pytest

from service.engine.commands.parse import parse
from service.engine.config import Flags
from service.engine.engines.llama_cpp.fit import fitted
from service.engine.engines.spec import FitAsked
from service.engine.units import MIB
from tests import models
from tests.bare_runs import memory_on
from tests.engine.built.test_commands import VERSION

pytestmark = pytest.mark.full

MODELS = [
    ("Qwen3-30B-A3B", "q4_K_M"),
    ("GLM-4.5-Air", "q4_K_M"),
    ("Llama-3.3-70B", "q4_K_M"),
    ("gpt-oss-20b", "exps=mxfp4,*=q8_0"),
    ("Qwen3-8B", "q8_0"),
    ("Gemma-3-27B", "q4_K_M"),
    ("DeepSeek-V2-Lite", "q4_K_M"),
]
RUNS = int(os.environ.get("FIT_RUNS", "40"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offload-advisor" / f"llama.cpp-{VERSION}"
FOLDER = Path(os.environ.get("ENGINE_CACHE", CACHE))


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The devices, compiled against the headers of the engine that scripts/build_engine.sh built."""
    ggml = FOLDER / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp" / "ggml"
    library = tmp_path_factory.mktemp("stand_in") / "stand_in.so"
    source = Path(__file__).with_name("stand_in.c")
    include = ["-I", str(ggml / "include"), "-I", str(ggml / "src")]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", *include, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Header-true models whose data are holes."""
    folder = tmp_path_factory.mktemp("models")
    return {name: models.write_gguf(folder / f"{name}.gguf", name, mix)[0] for name, mix in MODELS}


def chosen(file: Path, words: list[str], free: list[int], library: Path) -> str:
    devices = ",".join(f"CUDA{i}" for i in range(len(free)))
    program = FOLDER / "build" / "bin" / "llama-fit-params"
    env = {**os.environ, "GGML_BACKEND_PATH": str(library), "STAND_IN_FREE": ",".join(map(str, free))}
    line = [str(program), "-m", str(file), "-dev", devices, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=env, check=True).stdout.strip()


def computed(name: str, mix: str, words: list[str], free: list[int]) -> str:
    parsed, model = parse(" ".join(["llama-fit-params", *words]), "llama.cpp"), models.build(name, mix)
    flags = msgspec.structs.replace(parsed.flags, n_parallel=1, other=())

    def used(tried: Flags) -> list[int]:
        memory = memory_on("llama.cpp", model, tried, free, allocator="lab", tool="bench")
        return [one.weights + one.kv + one.compute for one in memory.devices[:-1]]

    asked = FitAsked(
        model=model,
        flags=flags,
        n_ctx=max(parsed.flags.n_ctx, 0),
        free=free,
        placed=False,
        streams=1,
        used=used,
    )
    return as_printed(fitted(asked), flags)


def as_printed(found: Flags, asked: Flags) -> str:
    """As llama-fit-params prints it."""
    layers = -1 if found.n_gpu_layers == asked.n_gpu_layers else found.n_gpu_layers
    split = [f"{share:.0f}" for share in found.tensor_split]
    while split and split[-1] == "0":
        split.pop()
    rules = ",".join(f"{rule.pattern}={rule.device}" for rule in found.overrides)
    shares = f" -ts {','.join(split)}" if len(split) > 1 else ""
    return f"-c {found.n_ctx} -ngl {layers}{shares}" + (f' -ot "{rules}"' if rules else "")


@pytest.mark.timeout(30 * RUNS)
def test_the_choice_is_that_of_llama_fit_params(stand_in: Path, files: dict[str, Path]) -> None:
    rng, differ = random.Random(7), []
    for _ in range(RUNS):
        name, mix = rng.choice(MODELS)
        size, n = models.build(name, mix).n_bytes // MIB, rng.choice([1, 1, 2, 2, 3])
        least, most = max(2_000, size // (6 * n)), max(int(size * 1.3 / n), 6_000)
        free = [rng.randrange(least, most) * MIB for _ in range(n)]
        words = ["-fa", "on", "-ub", rng.choice(["512", "1024", "2048"])]
        words += rng.choice([[], ["-c", "4096"], ["-c", "16384"], ["-c", "32768"]])
        words += rng.choice([[], ["-ctk", "q8_0", "-ctv", "q8_0"]])
        theirs, ours = chosen(files[name], words, free, stand_in), computed(name, mix, words, free)
        if theirs != ours:
            differ.append(f"{name} {[n // MIB for n in free]} {' '.join(words)}\n  {theirs}\n  {ours}")
    assert not differ, f"{len(differ)} of {RUNS} differ:\n" + "\n".join(differ)
