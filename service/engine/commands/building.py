"""The command that downloads a variant, and the engine's build line for some cards, model and flags, with reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.advice import BuildLine, BuildOption, Package
from service.engine.builds import commit_of_today
from service.engine.commands.shell import quote
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.hardware import Card
from service.engine.model import Model

_TURING = 7.5  # the oldest that CUDA 13 compiles for (CUDA 13.0 release notes)
# AMD's cards that no archive of llama.cpp's releases has code for (release.yml: gpu_targets).
_NOT_ARCHIVED = ("vega", "vega20", "rdna1")
_SYCL_COMPILERS = "the oneAPI compilers (docs/backend/SYCL.md)"
_ONEAPI = "source /opt/intel/oneapi/setvars.sh"  # docs/backend/SYCL.md: before a build, and before each run
# RDNA2 cards for which ROCm has no libraries; those of gfx1030 run on them (llama.cpp docs/build.md: HIP).
_LIKE_GFX1030 = re.compile(r"RX 6(?:[3-7]\d\d|8\d\d[SM])|W6[346]00")
_AS_GFX1030 = "export HSA_OVERRIDE_GFX_VERSION=10.3.0"
_CLANG = BuildOption(
    "-T ClangCL",
    "Visual Studio's clang: Microsoft's compiler is not supported for ARM",
    "llama.cpp ggml/src/ggml-cpu/CMakeLists.txt",
)
_SHARD = re.compile(r"-\d{5}-of-(\d{5}\.gguf)$")


def download(repo: str, files: Sequence[str], models_dir: str, *, revision: str | None = None) -> str:
    """Return one `hf download` line for the files of a variant of `repo` (OWNER/NAME), quoted for bash.

    The shards of one set become one `--include` pattern; other files are named one by one.
    """
    patterns = list(dict.fromkeys(_glob(file) for file in files))
    words = ["hf", "download", quote(repo)]
    if len(patterns) == 1:
        words += ["--include", quote(patterns[0])]
    else:
        words += [quote(file) for file in files]
    if revision:
        words += ["--revision", quote(revision)]
    return " ".join([*words, "--local-dir", quote(_folder(repo, models_dir))])


def model_path(repo: str, files: Sequence[str], models_dir: str) -> str:
    """Return where that download puts the first shard: the path inside the repo is kept below the local folder."""
    return f"{_folder(repo, models_dir)}/{min(files)}"


def _folder(repo: str, models_dir: str) -> str:
    return f"{models_dir.rstrip('/') or '.'}/{repo}"


def _glob(file: str) -> str:
    """Return an fnmatch pattern for a file and its sibling shards; `[`, `*` and `?` in the name are literal."""
    shard = _SHARD.search(file)
    stem, tail = (file[: shard.start()], f"-*-of-{shard[1]}") if shard else (file, "")
    return re.sub(r"([\[*?])", r"[\1]", stem) + tail


def build_line(
    engine: Engine, model: Model, flags: Flags, cards: Sequence[Card], *, windows_on_arm: bool = False
) -> BuildLine:
    """Return how to build `engine`, at the commit whose rules the answers follow, for these cards and flags."""
    options, backend = tuple(_options(engine, model, flags, cards)), _backend(cards)
    if windows_on_arm:
        options += (_CLANG,)
    repository = engine_spec(engine).repository
    configure = " ".join(["cmake -B build -DCMAKE_BUILD_TYPE=Release", *(one.option for one in options)])
    lines = (
        *_before(cards),
        f"git clone {repository} && cd {engine} && git checkout {commit_of_today(engine)}",
        *([_ONEAPI] if backend == "sycl" else []),
        f"{configure} && cmake --build build --config Release -j",
    )
    return BuildLine("\n".join(lines), options, tuple(_notes(engine, cards)))


def packages(engine: Engine, cards: Sequence[Card]) -> tuple[Package, ...]:
    """Return the ready-made builds of `engine` that have code for these cards, the official ones first.

    conda-forge's package takes CUDA 13 where the driver allows it (llama.cpp-feedstock). Linux's archive for ROCm has
    no code for cards that only run as others.
    """
    if any(card.generation in _NOT_ARCHIVED for card in cards if card.backend == "rocm"):
        return ()
    older = any(map(_is_before_turing, cards))
    found = engine_spec(engine).commands.packages("cuda 12" if older else _backend(cards))
    run_as_others = any(card.backend == "rocm" and _LIKE_GFX1030.search(card.name) for card in cards)
    return tuple(one for one in found if not (run_as_others and one.shell == "posix"))


def _is_before_turing(card: Card) -> bool:
    """Whether CUDA 13 no longer compiles for a card."""
    return card.backend == "cuda" and (card.compute_capability or _TURING) < _TURING


def _before(cards: Sequence[Card]) -> Iterator[str]:
    """Yield what has to be known or set before an engine is built for cards that their maker no longer supports."""
    rocm = [card for card in cards if card.backend == "rocm"]
    if old := {card.name for card in cards if _is_before_turing(card)}:
        yield f"# use CUDA 12: CUDA 13 no longer compiles for cards before Turing ({', '.join(sorted(old))})"
    if old := {card.name for card in rocm if card.generation == "vega20"}:  # ROCm/legacy-rocm-build issue 4625
        yield f"# use ROCm 6.3: later ones come without rocBLAS files for gfx906 ({', '.join(sorted(old))})"
    if any(_LIKE_GFX1030.search(card.name) for card in rocm):
        yield _AS_GFX1030


def _backend(cards: Sequence[Card]) -> str:
    return cards[0].backend if cards else "cpu"


def _options(engine: Engine, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
    backend = _backend(cards)
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
    yield BuildOption("-DGGML_CUDA=ON", "NVIDIA cards", "docs/build.md of both engines")
    known = sorted({card.compute_capability for card in cards if card.compute_capability})
    if known:
        names = ";".join(str(round(10 * number)) for number in known)
        reason = "kernels for these cards only: a shorter build, and nothing to compile at the first start"
        yield BuildOption(f'-DCMAKE_CUDA_ARCHITECTURES="{names}"', reason, "CMake CUDA_ARCHITECTURES; docs/build.md")
    yield from engine_spec(engine).commands.cuda_options(model, flags, cards)


def _notes(engine: Engine, cards: Sequence[Card]) -> Iterator[str]:
    backend = _backend(cards)
    if backend == "sycl":
        yield f"each shell or unit that starts the server needs `{_ONEAPI}` first"
    needed = list(_before(cards))
    if _AS_GFX1030 in needed:
        yield f"each shell or unit that starts the server needs `{_AS_GFX1030}` first"
    instead = engine_spec(engine).commands.instead_of_building.get(backend)
    if instead and not needed and not any(card.generation in _NOT_ARCHIVED for card in cards):
        yield instead
