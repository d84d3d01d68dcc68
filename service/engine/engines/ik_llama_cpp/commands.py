"""How ik_llama.cpp's commands are written and read: common/common.cpp, examples/llama-bench/llama-bench.cpp."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from service.engine.advice import BuildOption
from service.engine.builds import BuildRules
from service.engine.config import CACHE_TYPES, CacheType, Flags, Tool
from service.engine.engines.commands import EngineCommands
from service.engine.engines.drafting import Drafting
from service.engine.engines.ik_llama_cpp import ARCHITECTURES
from service.engine.engines.ik_llama_cpp.kernels import (
    ALL_QUANTS,
    LATENT_HEADS,
    VOLTA,
    heads_of,
    is_before_volta,
    kernel,
)
from service.engine.engines.tables import Options
from service.engine.hardware import Card
from service.engine.model import Model
from service.engine.tables import table_of


class IkCommands(EngineCommands):
    """ik_llama.cpp's commands."""

    options = table_of("options.json", Options, "service.engine.engines.ik_llama_cpp")
    retired = frozenset({"-ooae"})
    program_names = ("ik_llama", "llama-sweep-bench")
    image = ("ik_llama.cpp:server", "docker/ik_llama-{}.Containerfile", "server")
    image_lacks_blackwell = True
    bench_defaults = MappingProxyType({"attn_max_batch": 0})  # llama-bench.cpp:284; the other programs take 256
    bench_reads_numbers = True  # llama-bench.cpp:703, string_split<bool>
    latent_flags = MappingProxyType({"mla": 3, "attn_max_batch": 512})  # the default, and the author's advice
    rotates_keys = "-khad"  # pull 1034
    smaller_caches = (("q8_0", "q6_0"), ("q6_0", "q6_0"), ("q4_0", "q4_0"))
    drafting = MappingProxyType({"qwen35": "--spec-type mtp:n_max=1"})  # pull 1698: dense models, one token
    speculations = frozenset(  # common/speculative.cpp:44; :1227 reads - as _
        ("none", "draft", "dflash", "dspark", "mtp", "eagle3", "ngram-simple", "ngram-map-k", "ngram-map-k4v",
         "ngram-mod", "ngram-cache", "suffix", "ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod",
         "ngram_cache")
    )  # fmt: skip
    draft_kinds = MappingProxyType(  # common/common.cpp:242
        {"dflash": "dflash", "dspark": "dspark", "mtp": "mtp", "assistant": "mtp", "": "draft"}
    )
    next_tokens_in_one_slot = True  # common/speculative.cpp:2083
    draft_takes_rules = True  # common/speculative.cpp:1940
    server_caps_context = False  # examples/server/server-context.cpp:275, 303; :2234 ends the answer
    variables = MappingProxyType({"GGML_CUDA_DISABLE_FUSION": None, "GGML_CUDA_P2P": None})

    # common/common.cpp:1927; examples/server/server.cpp:467 reads the variables again behind the options
    flash_attn_words = MappingProxyType({"on": "on", "1": "on", "off": "off", "0": "off", "auto": "auto"})
    variables_read_last = ("llama-server",)

    def of_variable(self, option: str, value: str, known: Mapping[str, bool], rules: BuildRules) -> list[str]:
        """A switch is on for `1` and `true`, and off for any other word (common/common.cpp:388)."""
        on = value in ("1", "true")
        if option == "-fa" and rules.flash_attn_value == "needed":
            return ["-fa", "on" if on else "off"]
        if option == "-fa":
            return [] if on else ["-no-fa"]
        return [option, value] if known.get(option) else [option] if on else []

    def cache_types(self, tool: Tool) -> tuple[CacheType, ...]:
        """Return all types (common.cpp)."""
        return CACHE_TYPES

    def fit(self, tool: Tool, flags: Flags) -> list[str]:
        """Return `--fit` where it is the only way to say which layers stay in RAM with their caches."""
        return ["--fit"] if flags.layers_in_ram else []

    def load_mode(self, flags: Flags) -> list[str]:
        return (["--no-mmap"] if flags.mmap is False else []) + (["--mlock"] if flags.mlock else [])

    def no_op_offload(self, tool: Tool) -> list[str]:
        """Return the policy by which no operation of any number is offloaded (common.cpp)."""
        return ["-op", "-1,0"]

    def slots(self, tool: Tool, n_parallel: int) -> list[str]:
        """Return `-np`; one slot is the default."""
        return ["-np", str(n_parallel)] if n_parallel != 1 else []

    def overrides(self, tool: Tool, rules: Sequence[str]) -> list[str]:
        return [word for rule in rules for word in ("-ot", rule)]

    def written_drafting(self, kinds: Sequence[str], asked: Drafting) -> tuple[str, tuple[str, ...]]:
        """Return one entry (common/common.cpp:1098): of several the second would replace the first."""
        keys = ",".join(f"{key}={value}" for key, value in {**asked.older, **asked.keys}.items())
        entry = f"--spec-type {kinds[0]}" + (f":{keys}" if keys else "")
        return (entry, (*asked.switches, *asked.options)) if len(kinds) == 1 else ("", ())

    def older_defaults(self, flags: Flags, rules: BuildRules, words: Sequence[str]) -> list[str]:
        """Return `-fmoe` and `-mla`, which were not the defaults."""
        more = ["-fmoe"] if flags.fused_moe and not rules.fused_moe else []
        if flags.mla is not None and "-mla" not in words:
            more += ["-mla", str(flags.mla)]
        return more

    def cuda_options(self, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
        if model.architecture in ARCHITECTURES.having("latent_cache"):
            reason = "f16 overflows in models of this kind where a type has no kernel of its own and cuBLAS is used"
            yield BuildOption("-DGGML_CUDA_IQK_FORCE_BF16=ON", reason, "ik_llama.cpp ggml/CMakeLists.txt:122, pull 283")
        if flags.split_mode in ("graph", "tensor") and len(cards) > 2:
            reason = "more than two cards add up their shares of each layer: NCCL does it with fewer copies"
            yield BuildOption("-DGGML_NCCL=ON", reason, "docs/multi-gpu.md of both engines")
        if len(cards) > 1:
            reason = (
                "today's default, set explicitly for older checkouts: four pipeline copies cannot be allocated with "
                "experts in RAM"
            )
            yield BuildOption("-DGGML_SCHED_MAX_COPIES=1", reason, "ik_llama.cpp pulls 751 and 879")
        types = (flags.cache_type_k, flags.cache_type_v)
        older = any(map(is_before_volta, cards)) and model.mla is None
        if older and any(kernel(one, types) == "all quants" for one in heads_of(model.layers)):
            reason = "cards before Volta attend to this cache with kernels that are not compiled otherwise"
            yield BuildOption(ALL_QUANTS, reason, "ik_llama.cpp ggml-cuda/fattn-vec-f16.cu:21")

    def has_kernels(self, model: Model, pair: Sequence[str], cards: Sequence[Card]) -> bool:
        if not any(is_before_volta(card) for card in cards if card.free):
            return True
        if model.mla is not None:
            return kernel(LATENT_HEADS, (pair[0], pair[0])) == "built"
        return all(kernel(one, (pair[0], pair[1])) in ("built", "never") for one in heads_of(model.layers))

    def image_serves(self, arguments: Sequence[str], capabilities: Sequence[float]) -> bool:
        """Return False where cards before Volta need kernels that docker/ik_llama-cuda.Containerfile does not build.

        It takes the cards and the version of CUDA as arguments, but no options of CMake. Latent caches have no `-ctv`.
        """
        values = dict(itertools.pairwise(arguments))
        types = (values.get("-ctk", "f16"), values.get("-ctv", "f16"))
        older = min(capabilities, default=VOLTA) < VOLTA
        return not older or "-ctv" not in values or kernel((128, 128), types) != "all quants"
