"""How the shapes of models are written down: tensor tables and metadata under construction."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | str | bool | list[int] | list[float] | list[bool]
Values: TypeAlias = dict[str, Value]


class Row(NamedTuple):
    """A tensor before it has a type; `dims[0]` is contiguous. `f32`: never quantised. `kind`: its type in every mix."""

    name: str
    dims: tuple[int, ...]
    f32: bool
    kind: str = ""


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
        norm: bool = True,
    ) -> None:
        p, (n_head, n_head_kv, dim) = f"blk.{layer}.", heads
        if norm:
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


def metadata_of(
    arch: str, n_layer: int, n_embd: int, n_ff: int, heads: tuple[int, int, int], n_vocab: int, n_ctx: int,
    freq_base: float, *, eps: float = 1e-6, rope_dim: int = 0, more: Values,
) -> Values:  # fmt: skip
    """Return the metadata that every architecture here has, and `more`; heads: query, KV, size."""
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


def yarn(factor: float) -> Values:
    """Return the values of a context stretched by YaRN."""
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": 4096,
    }


def expert_values(n: int, used: int, n_ff: int, **more: Value) -> Values:
    """Return the values of `n` routed experts."""
    return {"expert_count": n, "expert_used_count": used, "expert_feed_forward_length": n_ff} | more
