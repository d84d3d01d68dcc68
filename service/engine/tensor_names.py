"""What a tensor is for and which block it belongs to, by the GGUF naming conventions (gguf-py/gguf/constants.py)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

Role: TypeAlias = Literal[
    "token_embd", "output", "attention", "recurrent", "dense_ffn", "router", "shared_expert", "expert", "norm", "nextn",
    "other",
]  # fmt: skip

_EXPERT = re.compile(r"\.ffn_(up|gate|down|gate_up)_(ch)?exps\.")
_SHARED = re.compile(r"\.ffn_(up|gate|down)_shexp\.|\.ffn_gate_inp_shexp\.")
_DENSE = re.compile(r"\.ffn_(up|gate|down|up_gate)\.")
_LAYER = re.compile(r"(?:(?:enc|dec)\.)?blk\.(\d+)\.")
NAMES_KEPT = 8192  # the variants of a repo have the same names, some 2,000 at most


@lru_cache(maxsize=NAMES_KEPT)
def layer_of(name: str) -> int | None:
    """Return the block a tensor name belongs to, or None for tensors outside the blocks."""
    match = _LAYER.match(name)
    return int(match[1]) if match else None


def is_expert(name: str) -> bool:
    """Return whether the tensor holds routed experts."""
    return _EXPERT.search(name) is not None


@lru_cache(maxsize=NAMES_KEPT)
def role_of(name: str) -> Role:
    """Return what a tensor is for, by the GGUF naming conventions (llama.cpp gguf-py/gguf/constants.py)."""
    if name.startswith(("token_embd", "per_layer_token_embd", "position_embd", "token_types")):
        return "token_embd"
    if name.startswith("output."):
        return "output"
    if ".nextn." in name:
        return "nextn"
    for role, pattern in (("expert", _EXPERT), ("shared_expert", _SHARED), ("dense_ffn", _DENSE)):
        if pattern.search(name):
            return role  # type: ignore[return-value]
    if ".ffn_gate_inp" in name or ".exp_probs_b" in name:
        return "router"
    if "_norm." in name:
        return "norm"
    if ".attn_" in name or ".indexer." in name:
        return "attention"
    return "recurrent" if ".ssm_" in name or ".time_mix" in name or ".shortconv" in name else "other"
