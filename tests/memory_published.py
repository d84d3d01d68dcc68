"""Buffer sizes that people posted from logs of older builds on real cards, as models, flags and figures in MiB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from service.engine.builds import Build, resolve_build
from service.engine.config import Engine, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.gguf.header import Header, Tensor
from service.engine.memory.cache import cache_bytes
from service.engine.memory.figures import Memory
from service.engine.memory.spec import make_spec
from service.engine.model import Model, build_model
from service.engine.units import GIB, MIB
from tests.bare_runs import memory_on
from tests.models import build

FILE = Path(__file__).parent / "data" / "memory_published.jsonl"
CARD_GIB = 24  # where the author did not say what cards he had; it decides the split between several only

SHAPES = {
    "deepseek-671b": "DeepSeek-R1-0528",
    "deepseek-v2-lite": "DeepSeek-V2-Lite",
    "deepseek-v2.5-236b": "DeepSeek-V2.5",
    "kimi-k2": "Kimi-K2-Instruct",
    "qwen3-235b-a22b": "Qwen3-235B-A22B",
    "qwen3-30b-a3b": "Qwen3-30B-A3B",
    "qwen3-32b": "Qwen3-32B",
    "qwen3-14b": "Qwen3-14B",
    "qwen3-0.6b": "Qwen3-0.6B",
    "llama3.1-8b": "Llama-3.1-8B",
    "gemma3-27b": "Gemma-3-27B",
    "gemma3-12b": "Gemma-3-12B",
}
OLDER_LAYOUTS = {"DeepSeek-R1-0528": ("DeepSeek-R1-kv_b-alone", "DeepSeek-R1-with-kv_b")}
PRESETS = {"Q4_K - Medium": "q4_k_m", "Q5_K - Medium": "q5_k_m", "Q4_K_M": "q4_k_m"}
_SETTINGS = {"n_ctx": "n_ctx", "n_batch": "n_batch", "n_ubatch": "n_ubatch", "mla": "mla", "mg": "main_gpu",
             "attn_max_b": "attn_max_batch", "sm": "split_mode", "ctk": "cache_type_k"}  # fmt: skip


# What the posts say outside of the log that was read: in prose, or by naming the command of another post.
_IN_PROSE: dict[str, dict[str, Any]] = {
    "disc286-ubergarm-4": {"ot": ["exps=CPU"]},
    "disc258-magikRUKKOLA-2": {"ot": [r"blk\.(3|4)\.ffn_.*=CUDA0", r"blk\.(5|6)\.ffn_.*=CUDA1", "exps=CPU"]},
    "disc258-magikRUKKOLA-3": {"ot": ["exps=CPU"], "ctk": "q8_0", "attn_max_b": 512, "pipeline_n_copies": 1},
}


class NotDerivable(Exception):
    """What the post does not say, or this project has no description of."""


@dataclass(frozen=True)
class PublishedRow:
    """One posted log: `record` as in the file."""

    record: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def month(self) -> str:
        return str(self.record["date"])[:7]

    @property
    def engine(self) -> Engine:
        engine: Engine = self.record["engine"]
        return engine

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.record["settings"] | _IN_PROSE.get(self.id, {})
        return settings

    @property
    def build(self) -> Build:
        """The build of that day; a log with pipeline copies says so."""
        return replace(
            resolve_build(self.engine, self.record["date"]), max_copies=self.settings.get("pipeline_n_copies", 1)
        )

    @property
    def n_gpus(self) -> int:
        return max((int(d[4:]) + 1 for d in self.record["compute"] if d[4:].isdigit()), default=0)

    def flags(self) -> Flags:
        """Return the settings as flags; what nobody stated has the default of the time."""
        stated: dict[str, Any] = {_SETTINGS[k]: v for k, v in self.settings.items() if k in _SETTINGS}
        stated["flash_attn"] = "on" if self.settings.get("flash_attn") else "off"
        stated["fused_moe"] = bool(self.settings.get("fused_moe"))
        stated["runtime_repack"] = bool(self.settings.get("rtr"))
        stated["attn_max_batch"] = stated.get("attn_max_batch", 0)
        values = self.settings.get("ctv", "f16")
        stated["cache_type_v"] = "f16" if "^" in values else values
        if "^" in values:
            stated["mla"] = 1  # the only mode with a transposed copy of the latent cache
        if self.record["model"]["arch"] == "deepseek2" and stated.get("mla") in (None, 2, 3):
            stated["cache_type_v"] = stated.get("cache_type_k", "f16")  # without flash attention too, at that time
        stated["n_gpu_layers"] = self.settings.get("ngl", self._offloaded())
        return Flags(**stated, overrides=self._overrides(), tensor_split=self._shares())

    def _offloaded(self) -> int:
        layers = self.record["offloaded_layers"]
        return int(layers.split("/")[0]) if layers else 999 if self.n_gpus else 0

    def _overrides(self) -> tuple[Override, ...]:
        rules = [rule.rpartition("=") for text in self.settings.get("ot", []) for rule in text.split(",")]
        return tuple(Override(pattern, device) for pattern, _, device in rules)

    def _shares(self) -> tuple[float, ...]:
        shares = self.settings.get("ts", ())
        return tuple(float(s) for s in (shares.replace("/", ",").split(",") if isinstance(shares, str) else shares))

    def cache(self) -> float:
        """Return the MiB of the whole KV cache that we predict."""
        model = self.model()
        spec = make_spec(self.engine, model, self.flags(), rules=self.build.rules.memory)
        return sum(cache_bytes(model, spec)) / MIB

    def memory(self, *, op_offload: bool = True) -> Memory:
        """Return the whole prediction; `op_offload` False: as if no weights were copied. Raises NotDerivable."""
        base = self.record["model"]["base"]
        if base not in SHAPES:
            raise NotDerivable("no header of this model")
        if "n_ctx" not in self.settings:
            raise NotDerivable("no context")
        if any(name.startswith("Vulkan") for name in self.record["compute"]):
            raise NotDerivable("not on CUDA")
        free = [int((gib or CARD_GIB) * 0.98 * GIB) for gib in self._cards()]
        model = build(self._shape(), self._mix())
        try:
            flags = replace(self.flags(), op_offload=op_offload)
            return memory_on(self.engine, model, flags, free, build=self.build)
        except InvalidFlags:
            raise NotDerivable("an -ot rule that only the author's shell understands") from None

    def _cards(self) -> list[float | None]:
        cards = list(self.record["gpus"]) + [None] * self.n_gpus
        return cards[: self.n_gpus]

    def _mix(self) -> str:
        counts, quant = self.record["model"]["type_counts"], self.record["model"]["quant"]
        if not self.n_gpus:
            return "q8_0"  # nothing is copied to a GPU: the compute buffer does not depend on the types
        counts = counts or _counts_by_quant().get((self.record["model"]["base"], _first_word(quant)))
        if quant in PRESETS and self.record["model"]["base"] != "deepseek-671b":
            return PRESETS[quant]
        kinds: dict[str, int] = {kind: n for kind, n in (counts or {}).items() if kind != "f32"}
        if len(kinds) == 1:
            return next(iter(kinds))
        model = build(SHAPES[self.record["model"]["base"]], "q8_0")
        n_moe = len(model.moe_layers)
        expert = next((k for k, n in kinds.items() if n_moe and n == 2 * n_moe), None)
        down = next((k for k, n in kinds.items() if n == n_moe), None)
        if expert is None or down is None:
            raise NotDerivable("the types of the experts are not stated")
        others = {k: n for k, n in kinds.items() if k not in (expert, down)}
        return f"ffn_down_exps={down},exps={expert},*={max(others, key=lambda k: others[k])}"

    def model(self) -> Model:
        """Return a model with the layers and heads of the row's. Raises NotDerivable."""
        base = self.record["model"]["base"]
        return build(self._shape(), "q8_0") if base in SHAPES else _from_log(self.record["hparams"])

    def _shape(self) -> str:
        """Return the shape whose layout of latent attention has as many tensors as the log counts."""
        newest, model = SHAPES[str(self.record["model"]["base"])], self.record["model"]
        n_tensors = model["n_tensors"] or sum((model["type_counts"] or {}).values())
        layouts = OLDER_LAYOUTS.get(newest, ())
        return next((shape for shape in layouts if len(build(shape, "q8_0").tensors) == n_tensors), newest)


def _from_log(facts: dict[str, Any]) -> Model:
    """Return a model with the layers and heads that a log printed."""
    if not facts:
        raise NotDerivable("no header of this model")
    heads = {k: json.loads(v) if isinstance(v, str) else v for k, v in facts.items()}
    metadata: dict[str, Any] = {
        "general.architecture": "published",
        "published.block_count": heads["n_layer"],
        "published.embedding_length": 1024,
        "published.attention.head_count": heads["n_head"],
        "published.attention.head_count_kv": heads["n_head_kv"],
        "published.attention.key_length": heads["n_embd_head_k"],
        "published.attention.value_length": heads["n_embd_head_v"],
    }
    return build_model(Header(metadata, (Tensor("token_embd.weight", "f16", (1024, 32), 0, 65536),), 0))


def _first_word(quant: str | None) -> str:
    return (quant or "").split(" ")[0]


@cache
def _counts_by_quant() -> dict[tuple[str, str], dict[str, int]]:
    """The numbers of tensors by type that another post about the same file printed."""
    models = [row.record["model"] for row in published_rows()]
    stated = [(m["base"], _first_word(m["quant"]), m["type_counts"]) for m in models if m["type_counts"]]
    stated.sort(key=lambda m: m[1].lower() in m[2])  # the post that names the quant's own type is believed
    return {(base, quant): counts for base, quant, counts in stated}


def published_rows() -> Iterator[PublishedRow]:
    """Yield all posted logs, as they stand in the file."""
    for line in FILE.read_text().splitlines():
        yield PublishedRow(json.loads(line))
