"""The engine's build line for these cards, this model and these flags, each option with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import BuildLine, BuildOption
from service.engine.builds import today
from service.engine.config import Engine, Flags
from service.engine.hardware import Card
from service.engine.memory.spec import LATENT_ARCHITECTURES_IK
from service.engine.model import Model

_REPOSITORIES: dict[Engine, str] = {
    "ik_llama.cpp": "https://github.com/ikawrakow/ik_llama.cpp",
    "llama.cpp": "https://github.com/ggml-org/llama.cpp",
}
_TURING = 7.5  # the oldest that CUDA 13 compiles for (CUDA 13.0 release notes)
_SYCL_COMPILERS = "the oneAPI compilers (docs/backend/SYCL.md)"


def build_line(engine: Engine, model: Model, flags: Flags, cards: Sequence[Card]) -> BuildLine:
    """Return how to build `engine`, at the commit whose rules the answers follow, for these cards and flags."""
    options = tuple(_options(engine, model, flags, cards))
    repository = _REPOSITORIES[engine]
    commit = today(engine).label.split(" ")[0]
    configure = " ".join(["cmake -B build -DCMAKE_BUILD_TYPE=Release", *(one.option for one in options)])
    lines = (
        f"git clone {repository} && cd {engine} && git checkout {commit}",
        f"{configure} && cmake --build build --config Release -j",
    )
    return BuildLine("\n".join(lines), options, tuple(_notes(cards)))


def _options(engine: Engine, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
    backend = cards[0].backend if cards else "cpu"
    if backend == "cuda":
        yield from _cuda(engine, model, flags, cards)
    elif backend == "rocm":
        yield BuildOption("-DGGML_HIP=ON", "AMD cards, through ROCm", "llama.cpp docs/build.md")
    elif backend == "vulkan":
        yield BuildOption("-DGGML_VULKAN=ON", "cards of any maker, through Vulkan", "llama.cpp docs/build.md")
    elif backend == "sycl":
        yield BuildOption("-DGGML_SYCL=ON", "Intel cards, through SYCL", "llama.cpp docs/backend/SYCL.md")
        yield BuildOption("-DCMAKE_C_COMPILER=icx", _SYCL_COMPILERS, "llama.cpp docs/backend/SYCL.md")
        yield BuildOption("-DCMAKE_CXX_COMPILER=icpx", _SYCL_COMPILERS, "llama.cpp docs/backend/SYCL.md")
    elif backend == "cpu":
        reason = "no GPU: a build with CUDA or BLAS sends batches elsewhere and was measured slower on CPUs"
        yield BuildOption("-DGGML_CUDA=OFF", reason, "ik_llama.cpp discussion 357")


def _cuda(engine: Engine, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
    ik = engine == "ik_llama.cpp"
    yield BuildOption("-DGGML_CUDA=ON", "NVIDIA cards", "docs/build.md of both engines")
    known = sorted({card.compute_capability for card in cards if card.compute_capability})
    if known:
        names = ";".join(str(round(10 * number)) for number in known)
        reason = "kernels for these cards and no others: a shorter build, and nothing is compiled at the first start"
        yield BuildOption(f'-DCMAKE_CUDA_ARCHITECTURES="{names}"', reason, "CMake CUDA_ARCHITECTURES; docs/build.md")
    if ik and model.architecture in LATENT_ARCHITECTURES_IK:
        reason = "f16 overflows in models of this kind where a type has no kernel of its own and cuBLAS is used"
        yield BuildOption("-DGGML_CUDA_IQK_FORCE_BF16=ON", reason, "ik_llama.cpp ggml/CMakeLists.txt:122, pull 283")
    if flags.split_mode in ("graph", "tensor") and len(cards) > 2:
        reason = "more than two cards add up their shares of each layer: NCCL does it with fewer copies"
        yield BuildOption(
            "-DGGML_NCCL=ON" if ik else "-DGGML_CUDA_NCCL=ON", reason, "docs/multi-gpu.md of both engines"
        )
    if ik and len(cards) > 1:
        reason = (
            "today's default, said for older checkouts: four pipeline copies cannot be allocated beside experts in RAM"
        )
        yield BuildOption("-DGGML_SCHED_MAX_COPIES=1", reason, "ik_llama.cpp pulls 751 and 879")
    quantised = {flags.cache_type_k, flags.cache_type_v} - {"f16", "f32", "bf16"}
    if ik and quantised and any((card.compute_capability or _TURING) < _TURING for card in cards):
        reason = "cards before Turing attend to this cache with kernels that are not compiled otherwise"
        yield BuildOption("-DGGML_CUDA_FA_ALL_QUANTS=ON", reason, "ik_llama.cpp ggml-cuda/fattn-vec-f16.cu:21")


def _notes(cards: Sequence[Card]) -> Iterator[str]:
    old = sorted({card.name for card in cards if card.backend == "cuda" and (card.compute_capability or 99) < _TURING})
    if old:
        yield f"{', '.join(old)}: use CUDA 12, for CUDA 13 no longer compiles for cards before Turing"
