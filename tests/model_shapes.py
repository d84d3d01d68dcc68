"""Published shapes of 37 models: metadata and tensor names with their dimensions, before weights get types.

Hyperparameters are those of each model's published config.json; tensor names and shapes follow the conversion
conventions of llama.cpp (gguf-py/gguf/tensor_mapping.py, convert_hf_to_gguf.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

Values: TypeAlias = dict[str, int | float | str | bool]


class Row(NamedTuple):
    """A tensor before it has a type; `dims[0]` is contiguous. `f32`: never quantised."""

    name: str
    dims: tuple[int, ...]
    f32: bool


class Shape(NamedTuple):
    """What an architecture is before its weights get types."""

    architecture: str
    metadata: Values
    rows: list[Row]
    n_vocab: int


class Rows(list[Row]):
    """The tensor table under construction."""

    def weight(self, name: str, *dims: int) -> None:
        self.append(Row(f"{name}.weight", dims, False))

    def f32(self, name: str, *dims: int) -> None:
        self.append(Row(name, dims, True))

    def ends(self, n_embd: int, n_vocab: int, tied: bool = False) -> None:
        self.weight("token_embd", n_embd, n_vocab)
        self.f32("output_norm.weight", n_embd)
        if not tied:
            self.weight("output", n_embd, n_vocab)

    def attention(
        self,
        layer: int,
        n_embd: int,
        heads: tuple[int, int, int],
        *,
        qk_norm: str = "",
        bias: bool = False,
        gated: bool = False,
    ) -> None:
        p, (n_head, n_head_kv, dim) = f"blk.{layer}.", heads
        self.f32(p + "attn_norm.weight", n_embd)
        for part, count in (("q", n_head * (2 if gated else 1)), ("k", n_head_kv), ("v", n_head_kv)):
            self.weight(p + "attn_" + part, n_embd, count * dim)
            if bias:
                self.f32(p + f"attn_{part}.bias", count * dim)
        if qk_norm:
            per_head = qk_norm == "head"
            self.f32(p + "attn_q_norm.weight", dim if per_head else n_head * dim)
            self.f32(p + "attn_k_norm.weight", dim if per_head else n_head_kv * dim)
        self.weight(p + "attn_output", n_head * dim, n_embd)

    def dense(self, layer: int, n_embd: int, n_ff: int) -> None:
        p = f"blk.{layer}.ffn_"
        self.weight(p + "gate", n_embd, n_ff)
        self.weight(p + "up", n_embd, n_ff)
        self.weight(p + "down", n_ff, n_embd)

    def experts(
        self, layer: int, n_embd: int, n_expert: int, n_ff: int, *, shared: int = 0, bias: bool = False,
        expert_bias: bool = False,
    ) -> None:  # fmt: skip
        p = f"blk.{layer}."
        self.f32(p + "ffn_gate_inp.weight", n_embd, n_expert)
        if bias:
            self.f32(p + "exp_probs_b.bias", n_expert)
        for part, dims in (("gate", (n_embd, n_ff)), ("up", (n_embd, n_ff)), ("down", (n_ff, n_embd))):
            self.weight(p + f"ffn_{part}_exps", *dims, n_expert)
            if expert_bias:
                self.f32(p + f"ffn_{part}_exps.bias", dims[1], n_expert)
        if shared:
            self.weight(p + "ffn_gate_shexp", n_embd, shared)
            self.weight(p + "ffn_up_shexp", n_embd, shared)
            self.weight(p + "ffn_down_shexp", shared, n_embd)


def _metadata(
    arch: str, n_layer: int, n_embd: int, n_ff: int, heads: tuple[int, int, int], n_vocab: int, n_ctx: int,
    freq_base: float, *, eps: float = 1e-6, rope_dim: int = 0, more: Values,
) -> Values:  # fmt: skip
    n_head, n_head_kv, dim = heads
    values: Values = {
        "block_count": n_layer,
        "context_length": n_ctx,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "rope.freq_base": float(freq_base),
        "attention.layer_norm_rms_epsilon": eps,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "rope.dimension_count": rope_dim or dim,
        "vocab_size": n_vocab,
    }
    return {f"{arch}.{key}": value for key, value in (values | more).items()}


def _yarn(factor: float) -> Values:
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": 4096,
    }


def _experts(n: int, used: int, n_ff: int, **more: int | float | str | bool) -> Values:
    return {"expert_count": n, "expert_used_count": used, "expert_feed_forward_length": n_ff} | more


def _mla(
    n_layer: int, n_embd: int, n_head: int, n_ff: int, dense: int, n_expert: int, n_ff_expert: int, shared: int,
    n_vocab: int, n_ctx: int, *, used: int = 8, q_lora: int = 1536, scale: float = 2.5, sigmoid: bool = True,
    with_kv_b: bool = False,
) -> Shape:  # fmt: skip
    rank, nope, rope, value = 512, 128, 64, 128
    more = _experts(
        n_expert, used, n_ff_expert, leading_dense_block_count=dense, expert_shared_count=shared,
        expert_weights_scale=scale, expert_weights_norm=True, expert_gating_func=2 if sigmoid else 1,
    )  # fmt: skip
    more |= {"attention.kv_lora_rank": rank, "attention.value_length": rank}
    more |= {"attention.key_length_mla": nope + rope, "attention.value_length_mla": value}
    more |= _yarn(40.0) | {"rope.scaling.yarn_log_multiplier": 0.1}
    if q_lora:
        more["attention.q_lora_rank"] = q_lora
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        _mla_attention(rows, i, n_embd, n_head, q_lora, with_kv_b)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert * shared, bias=sigmoid)
    metadata = _metadata(
        "deepseek2", n_layer, n_embd, n_ff, (n_head, 1, rank + rope), n_vocab, n_ctx, 1e4, rope_dim=rope, more=more
    )
    return Shape("deepseek2", metadata, rows, n_vocab)


def _mla_attention(rows: Rows, layer: int, n_embd: int, n_head: int, q_lora: int, with_kv_b: bool) -> None:
    p, rank, nope, rope, value = f"blk.{layer}.", 512, 128, 64, 128
    rows.f32(p + "attn_norm.weight", n_embd)
    if q_lora:
        rows.weight(p + "attn_q_a", n_embd, q_lora)
        rows.f32(p + "attn_q_a_norm.weight", q_lora)
        rows.weight(p + "attn_q_b", q_lora, n_head * (nope + rope))
    else:
        rows.weight(p + "attn_q", n_embd, n_head * (nope + rope))
    rows.weight(p + "attn_kv_a_mqa", n_embd, rank + rope)
    rows.f32(p + "attn_kv_a_norm.weight", rank)
    if with_kv_b:  # the older layout: attn_kv_b is there, attn_k_b and attn_v_b have two dimensions
        rows.weight(p + "attn_kv_b", rank, n_head * (nope + value))
        rows.weight(p + "attn_k_b", nope, rank * n_head)
        rows.weight(p + "attn_v_b", rank, value * n_head)
    else:
        rows.weight(p + "attn_k_b", nope, rank, n_head)
        rows.weight(p + "attn_v_b", rank, value, n_head)
    rows.weight(p + "attn_output", n_head * value, n_embd)
    rows.f32(p + "ffn_norm.weight", n_embd)


def _gqa(
    arch: str, n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, n_vocab: int, n_ctx: int, *,
    moe: tuple[int, int, int] | None = None, qk_norm: str = "", base: float = 1e6, tied: bool = False,
    bias: bool = False,
) -> Shape:  # fmt: skip
    more = _experts(*moe) if moe else {}
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied)
    for i in range(n_layer):
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=bias)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if moe:
            rows.experts(i, n_embd, moe[0], moe[2])
        else:
            rows.dense(i, n_embd, n_ff)
    return Shape(arch, _metadata(arch, n_layer, n_embd, n_ff, heads, n_vocab, n_ctx, base, more=more), rows, n_vocab)


def _minimax_m2() -> Shape:
    arch, n_embd, heads, n_expert, n_ff, n_vocab = "minimax-m2", 3072, (48, 8, 128), 256, 1536, 200064
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(62):
        rows.attention(i, n_embd, heads, qk_norm="row")
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.experts(i, n_embd, n_expert, n_ff, bias=True)
    more = _experts(n_expert, 8, n_ff, expert_gating_func=2)
    metadata = _metadata(arch, 62, n_embd, n_ff, heads, n_vocab, 196608, 5e6, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _glm4moe(
    n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, dense: int, moe: tuple[int, int],
    n_ctx: int, qk_norm: str,
) -> Shape:  # fmt: skip
    arch, n_vocab, (n_expert, n_ff_expert) = "glm4moe", 151552, moe
    more = _experts(
        n_expert, 8, n_ff_expert, expert_shared_count=1, leading_dense_block_count=dense, expert_gating_func=2,
        expert_weights_scale=2.5, expert_weights_norm=True, nextn_predict_layers=1,
    )  # fmt: skip
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer + 1):
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=True)
        rows.f32(f"blk.{i}.post_attention_norm.weight", n_embd)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert, bias=True)
    rows.weight(f"blk.{n_layer}.nextn.eh_proj", 2 * n_embd, n_embd)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        rows.f32(f"blk.{n_layer}.nextn.{name}.weight", n_embd)
    metadata = _metadata(
        arch, n_layer + 1, n_embd, n_ff, heads, n_vocab, n_ctx, 1e6, eps=1e-5, rope_dim=64, more=more
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _gpt_oss(n_layer: int, n_expert: int) -> Shape:
    arch, n_embd, heads, n_vocab = "gpt-oss", 2880, (64, 8, 64), 201088
    more = _experts(n_expert, 4, n_embd) | {"attention.sliding_window": 128} | _yarn(32.0)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, bias=True)
        rows.f32(p + "attn_output.bias", n_embd)
        rows.f32(p + "attn_sinks.weight", heads[0])
        rows.f32(p + "post_attention_norm.weight", n_embd)
        rows.f32(p + "ffn_gate_inp.bias", n_expert)
        rows.experts(i, n_embd, n_expert, n_embd, expert_bias=True)
    metadata = _metadata(arch, n_layer, n_embd, n_embd, heads, n_vocab, 131072, 150000, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _gemma3(n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int) -> Shape:
    arch, n_vocab = "gemma3", 262208
    more: Values = {"attention.sliding_window": 1024}
    more |= {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    for i in range(n_layer):
        rows.attention(i, n_embd, heads, qk_norm="head")
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.dense(i, n_embd, n_ff)
        rows.f32(f"blk.{i}.post_attention_norm.weight", n_embd)
        rows.f32(f"blk.{i}.post_ffw_norm.weight", n_embd)
    return Shape(arch, _metadata(arch, n_layer, n_embd, n_ff, heads, n_vocab, 131072, 1e6, more=more), rows, n_vocab)


def _llama4(n_expert: int, step: int) -> Shape:
    arch, n_embd, heads, n_ff, n_ff_expert, n_vocab = "llama4", 5120, (40, 8, 128), 16384, 8192, 202048
    more = _experts(n_expert, 1, n_ff_expert, interleave_moe_layer_step=step)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("rope_freqs.weight", 64)
    for i in range(48):
        rows.attention(i, n_embd, heads)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if i % step == step - 1:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert)
        else:
            rows.dense(i, n_embd, n_ff)
    return Shape(
        arch, _metadata(arch, 48, n_embd, n_ff, heads, n_vocab, 1048576, 5e5, eps=1e-5, more=more), rows, n_vocab
    )


def _qwen3_next() -> Shape:
    """Hybrid: three gated-delta-net layers, then one full-attention layer."""
    arch, n_layer, n_embd, heads, n_vocab = "qwen3next", 48, 2048, (16, 2, 256), 151936
    n_key, n_value, dim = 16, 32, 128
    more = _experts(512, 10, 512, expert_shared_feed_forward_length=512)
    more |= {"ssm.conv_kernel": 4, "ssm.inner_size": n_value * dim, "ssm.state_size": dim}
    more |= {"ssm.time_step_rank": n_value, "ssm.group_count": n_key}
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        if i % 4 == 3:
            rows.attention(i, n_embd, heads, qk_norm="head", gated=True)
        else:
            rows.f32(p + "attn_norm.weight", n_embd)
            rows.weight(p + "ssm_in", n_embd, 2 * n_key * dim + 2 * n_value * dim)
            rows.f32(p + "ssm_conv1d.weight", 4, 2 * n_key * dim + n_value * dim)
            rows.f32(p + "ssm_dt.bias", n_value)
            rows.f32(p + "ssm_a", n_value)
            rows.weight(p + "ssm_ba", n_embd, 2 * n_value)
            rows.f32(p + "ssm_norm.weight", dim)
            rows.weight(p + "ssm_out", n_value * dim, n_embd)
        rows.f32(p + "post_attention_norm.weight", n_embd)
        rows.experts(i, n_embd, 512, 512, shared=512)
        rows.f32(p + "ffn_gate_inp_shexp.weight", n_embd)
    metadata = _metadata(arch, n_layer, n_embd, 5120, heads, n_vocab, 262144, 1e7, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


_DEEPSEEK_V3 = partial(_mla, 61, 7168, 128, 18432, 3, 256, 2048, 1, 129280, 163840)
_GLM_4_6 = partial(_glm4moe, 92, 5120, (96, 8, 128), 12288, 3, (160, 1536), 202752, "head")
_QWEN3 = partial(_gqa, "qwen3", n_vocab=151936, n_ctx=40960, qk_norm="head")
_QWEN3_MOE = partial(_gqa, "qwen3moe", n_vocab=151936, qk_norm="head")
_QWEN2 = partial(_gqa, "qwen2", n_vocab=152064, n_ctx=32768, bias=True)
_LLAMA3 = partial(_gqa, "llama", n_vocab=128256, n_ctx=131072, base=5e5)
_LLAMA2 = partial(_gqa, "llama", n_vocab=32000, n_ctx=4096, base=1e4)

SHAPES: dict[str, Callable[[], Shape]] = {
    "DeepSeek-R1-0528": _DEEPSEEK_V3,
    "DeepSeek-V3-0324": _DEEPSEEK_V3,
    "DeepSeek-R1-with-kv_b": partial(_DEEPSEEK_V3, with_kv_b=True),
    "Kimi-K2-Instruct": partial(_mla, 61, 7168, 64, 18432, 1, 384, 2048, 1, 163840, 131072, scale=2.827),
    "DeepSeek-V2.5": partial(
        _mla, 60, 5120, 128, 12288, 1, 160, 1536, 2, 102400, 163840, used=6, scale=16.0, sigmoid=False
    ),
    "DeepSeek-V2-Lite": partial(
        _mla, 27, 2048, 16, 10944, 1, 64, 1408, 2, 102400, 163840, used=6, q_lora=0, scale=1.0, sigmoid=False
    ),
    "Qwen3-235B-A22B": partial(_QWEN3_MOE, 94, 4096, (64, 4, 128), 12288, n_ctx=40960, moe=(128, 8, 1536)),
    "Qwen3-30B-A3B": partial(_QWEN3_MOE, 48, 2048, (32, 4, 128), 6144, n_ctx=40960, moe=(128, 8, 768)),
    "Qwen3-Coder-480B-A35B": partial(
        _QWEN3_MOE, 62, 6144, (96, 8, 128), 8192, n_ctx=262144, moe=(160, 8, 2560), base=1e7
    ),
    "Qwen3-32B": partial(_QWEN3, 64, 5120, (64, 8, 128), 25600),
    "Qwen3-14B": partial(_QWEN3, 40, 5120, (40, 8, 128), 17408),
    "Qwen3-4B": partial(_QWEN3, 36, 2560, (32, 8, 128), 9728, tied=True),
    "Qwen3-8B": partial(_QWEN3, 36, 4096, (32, 8, 128), 12288),
    "Qwen3-0.6B": partial(_QWEN3, 28, 1024, (16, 8, 128), 3072, tied=True),
    "Llama-3.3-70B": partial(_LLAMA3, 80, 8192, (64, 8, 128), 28672),
    "Llama-3.1-8B": partial(_LLAMA3, 32, 4096, (32, 8, 128), 14336),
    "Llama-3.2-3B": partial(_LLAMA3, 28, 3072, (24, 8, 128), 8192, tied=True),
    "Llama-2-7B": partial(_LLAMA2, 32, 4096, (32, 32, 128), 11008),
    "Llama-2-70B": partial(_LLAMA2, 80, 8192, (64, 8, 128), 28672),
    "Mixtral-8x22B": partial(_gqa, "llama", 56, 6144, (48, 8, 128), 16384, 32000, 65536, moe=(8, 2, 16384)),
    "Mistral-Small-24B": partial(_gqa, "llama", 40, 5120, (32, 8, 128), 32768, 131072, 131072, base=1e9),
    "Mistral-Large-123B": partial(_gqa, "llama", 88, 12288, (96, 8, 128), 28672, 32768, 131072),
    "Qwen2.5-72B": partial(_QWEN2, 80, 8192, (64, 8, 128), 29568),
    "Qwen2.5-32B": partial(_QWEN2, 64, 5120, (40, 8, 128), 27648),
    "Qwen2.5-7B": partial(_QWEN2, 28, 3584, (28, 4, 128), 18944),
    "MiniMax-M2": _minimax_m2,
    "GLM-4.6": _GLM_4_6,
    "GLM-4.5": _GLM_4_6,
    "GLM-4.7": _GLM_4_6,
    "GLM-4.5-Air": partial(_glm4moe, 46, 4096, (96, 8, 128), 10944, 1, (128, 1408), 131072, ""),
    "gpt-oss-120b": partial(_gpt_oss, 36, 128),
    "gpt-oss-20b": partial(_gpt_oss, 24, 32),
    "Gemma-3-27B": partial(_gemma3, 62, 5376, (32, 16, 128), 21504),
    "Gemma-3-12B": partial(_gemma3, 48, 3840, (16, 8, 256), 15360),
    "Llama-4-Maverick": partial(_llama4, 128, 2),
    "Llama-4-Scout": partial(_llama4, 16, 1),
    "Qwen3-Next-80B-A3B": _qwen3_next,
}
