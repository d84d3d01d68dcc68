"""How llama.cpp's commands are written and read: common/arg.cpp, tools/llama-bench/llama-bench.cpp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from service.engine.advice import BuildOption, Package
from service.engine.builds import BuildRules
from service.engine.config import CACHE_TYPES, CacheType, Flags, Tool
from service.engine.engines.commands import EngineCommands
from service.engine.engines.drafting import Drafting
from service.engine.engines.tables import Options
from service.engine.hardware import Card
from service.engine.model import Model
from service.engine.tables import table_of

_NEGATED = frozenset({"--no-mmap", "--no-mmproj-offload", "-nkvo"})  # options with a variable LLAMA_ARG_NO_…
_NOT_HERE = frozenset({"q6_0", "q8_KV"})  # of cache types


class _Packages(msgspec.Struct, frozen=True):
    """`packages.json`: for each back end what needs no build, and what makes one needless on Linux.

    On Linux what is in the archives needs the same version of ROCm or oneAPI as it was built with
    (docs/backend/SYCL.md). Archives of releases are files to unpack, for their tags are not known here.
    """

    packages: dict[str, tuple[Package, ...]]
    instead_of_building: dict[str, str]


_SPEC_DRAFT = {"n_max": "--spec-draft-n-max", "n_min": "--spec-draft-n-min", "p_min": "--spec-draft-p-min"}
_PACKAGES = table_of("packages.json", _Packages, "service.engine.engines.llama_cpp")
# src/models/*.cpp of 0c1e57098 that have a graph_mtp; three tokens for dense models (pull 22673), one for mixtures
# (pulls 24868, 26534, issue 24266).
_DRAFTING = {"qwen35": "--spec-type draft-mtp --spec-draft-n-max 3"} | dict.fromkeys(
    ("qwen35moe", "glm4moe", "deepseek2", "deepseek32", "glm-dsa", "hy_v3", "step35"),
    "--spec-type draft-mtp --spec-draft-n-max 1",
)


class LlamaCommands(EngineCommands):
    """llama.cpp's commands."""

    options = table_of("options.json", Options, "service.engine.engines.llama_cpp")
    image = ("llama.cpp:server", ".devops/{}.Dockerfile", "server")
    first_rule_wins = True
    bench_rule_separator = ";"  # llama-bench.cpp:941; ',' splits its tests
    bench_fits = frozenset({"-fitt", "--fit-target", "-fitc", "--fit-ctx"})  # llama-bench.cpp:2327
    server_caps_context = True  # tools/server/server-context.cpp:4015
    # src/llama-context.cpp:3891; pull 28030 of 2026-08-30, and in b10754 of 2026-09-03 at the latest
    yarn_lifts_cap_from = "2026-09-03"
    speculations = frozenset(
        ("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple",
         "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
    )  # fmt: skip
    draft_kinds = MappingProxyType(
        {"dflash": "draft-dflash", "dspark": "draft-dspark", "mtp": "draft-mtp", "assistant": "draft-mtp",
         "eagle3": "draft-eagle3", "": "draft-simple"}
    )  # fmt: skip
    loads_idle_draft = True  # common/common.h:388, tools/server/server-context.cpp:1000
    drafting = MappingProxyType(_DRAFTING)
    rotates_caches_from = "2026-05-01"  # pull 21038, opened on 2026-03-26 and merged in the month after
    instead_of_building = MappingProxyType(_PACKAGES.instead_of_building)
    flash_attn_words = MappingProxyType(  # common/arg.cpp:1334, 1758
        dict.fromkeys(("on", "enabled", "true", "1"), "on")
        | dict.fromkeys(("off", "disabled", "false", "0"), "off")
        | dict.fromkeys(("auto", "-1"), "auto")
    )
    variables = MappingProxyType(  # ggml-cuda/ggml-cuda.cu, src/llama-kv-cache.cpp
        {"GGML_OP_OFFLOAD_MIN_BATCH": "copies", "LLAMA_SET_ROWS": "none", "LLAMA_ATTN_ROT_DISABLE": "none"}
    )

    def of_variable(self, option: str, value: str, known: Mapping[str, bool], rules: BuildRules) -> list[str]:
        """`LLAMA_ARG_NO_…` counts where it is set, with any value (arg.cpp, get_value_from_env); LLAMA_ARG_MMAP is the
        same the other way round."""
        if option in _NEGATED and rules.negating_variables:
            return [option]
        if option == "--mmap":
            off = rules.negating_variables and value.lower() in ("0", "off", "false", "disabled")
            return ["--no-mmap"] if off else []
        return super().of_variable(option, value, known, rules)

    def cache_types(self, tool: Tool) -> tuple[CacheType, ...]:
        """Return the types of arg.cpp, and of llama-bench.cpp:512."""
        lacks = _NOT_HERE | ({"f32"} if tool == "bench" else set())
        return tuple(t for t in CACHE_TYPES if t not in lacks)

    def fit(self, tool: Tool, flags: Flags) -> list[str]:
        """The server fits by default, and may shrink the context (arg.cpp): a complete placement says no."""
        return ["-fit", "off"] if tool == "server" else []

    def load_mode(self, flags: Flags) -> list[str]:
        """Return `-lm`, one option for both (arg.cpp:2691)."""
        if flags.mlock:
            return ["-lm", "mlock" if flags.mmap is False else "mmap+mlock"]
        return [] if flags.mmap is None else ["-lm", "mmap" if flags.mmap else "none"]

    def no_op_offload(self, tool: Tool) -> list[str]:
        return ["--no-op-offload"] if tool == "server" else ["-nopo", "1"]

    def slots(self, tool: Tool, n_parallel: int) -> list[str]:
        """Return `-np`: the server takes four slots unless told (server.cpp:156)."""
        return ["-np", str(n_parallel)] if tool == "server" else []

    def overrides(self, tool: Tool, rules: Sequence[str]) -> list[str]:
        """Return one option for all rules: repeated ones are warned of (arg.cpp:833)."""
        return ["-ot", ("," if tool == "server" else self.bench_rule_separator).join(rules)] if rules else []

    def infers_drafting(self, kind: str, draft: Model | None) -> bool:
        """Return True for what common/speculative.cpp:2270 tells by the file, or arg.cpp:546 by the draft's repo."""
        if draft is None:
            return kind != self.draft_kinds[""]
        return draft.architecture == "dflash" or f"blk.{draft.n_layer - 1}.nextn.eh_proj.weight" in draft.by_name

    def written_drafting(self, kinds: Sequence[str], asked: Drafting) -> tuple[str, tuple[str, ...]]:
        """Return one option for all kinds, and one for each key; the older options have names of their own today."""
        own = [f"{_SPEC_DRAFT[key]} {value}" for key, value in asked.keys.items() if key in _SPEC_DRAFT]
        return " ".join([f"--spec-type {','.join(kinds)}", *own]), asked.switches

    def packages(self, backend: str) -> tuple[Package, ...]:
        """Return what llama.cpp's docs/install.md lists (1993ed50f), and its releases, for these cards."""
        return _PACKAGES.packages.get(backend, ())

    def cuda_options(self, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
        if flags.split_mode in ("graph", "tensor") and len(cards) > 2:
            reason = "more than two cards add up their shares of each layer: NCCL does it with fewer copies"
            yield BuildOption("-DGGML_CUDA_NCCL=ON", reason, "docs/multi-gpu.md of both engines")
