"""What differs between builds of the engines: defaults, the meaning of flags, and how memory is laid out.

Every field's default is today's behaviour. `history.json` says since when; a field means nothing to the other engine.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """Switches of placement, graphs and buffers.

    `f32_masks`: with flash attention too the mask is f32, and cast.

    ik_llama.cpp. `mask_padding`: its rows are a multiple
    of this. `chunks_at_once`: keys and values of all `-amb` steps of latent attention live together. `halved_heads`:
    the steps halve the heads. `fused_sums`: experts are weighted and summed in one operation. `fused_dense`: up and
    gate of dense layers are one operation. `threshold_by_experts`: experts are copied to a GPU only for batches that
    hit most of them. `n_copies`: pipeline copies. `layers_by_bytes`: layers are divided by bytes, else by count.
    `mla`, `attn_max_batch`: the defaults of `-mla` and `-amb`, `least_batch` what `-amb` is raised to.
    `expert_layers`: which layers `-ncmoe` means. `partial_latent`: `-ngl` below all layers forces `-mla 3`.
    `only_in_ram`: types of weights that no GPU multiplies by. `latent_without_kv_b`: what becomes of files of latent
    attention without attn_kv_b: it is made of what they have, -mla 1 is forced, or they are refused.
    `copies_fused_experts`: a fused up and gate in RAM is copied to a GPU for a batch. `copies_with_repack`: with
    -rtr too experts are copied. `pins_overridden`: RAM is page-locked where an override puts weights there.
    `up_before_gate`: in which order they come where they are two operations.

    Both. `copies_used_experts`: of experts in RAM only those that a batch uses are copied to a GPU. `pipeline`: several
    GPUs that hold the whole model work on several micro-batches at a time, with copies of what crosses between them.
    `gives_up_pipeline`: where these do not fit, the engine goes on without.

    `described`: the graphs of the time are those of today but for these switches.

    llama.cpp. `whole_logits`: the server reserves logits of a whole batch. `head_first`: the output head is the first
    that `-ngl` moves. `window_caches`: windowed layers keep their window only. `latent_cache`: latent attention keeps
    its latent rows, those and values, or K and V of every head.
    """

    f32_masks: bool = False
    mask_padding: int = 16
    chunks_at_once: bool = False
    halved_heads: bool = False
    fused_sums: bool = True
    fused_dense: bool = True
    threshold_by_experts: bool = True
    n_copies: int = 1
    layers_by_bytes: bool = True
    expert_layers: Literal["last", "share from the first", "first"] = "last"
    partial_latent: bool = True
    mla: int = 3
    attn_max_batch: int = 256
    least_batch: int = 128
    only_in_ram: tuple[str, ...] = ()
    latent_without_kv_b: Literal["made", "forces -mla 1", "refused"] = "made"
    copies_fused_experts: bool = True
    copies_used_experts: bool = True
    copies_with_repack: bool = True
    pipeline: bool = True
    gives_up_pipeline: bool = True
    pins_overridden: bool = True
    up_before_gate: bool = True
    whole_logits: bool = False
    head_first: bool = True
    window_caches: bool = True
    described: bool = True
    latent_cache: Literal["rows", "rows and values", "heads"] = "rows"


class BuildRules(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of a build's programs, and its memory.

    `flash_attn`, `fused_moe`, `n_gpu_layers`, `fit`: where the command says nothing. `auto_slots`: slots of llama.cpp's
    server without `-np`. `flash_attn_value`: what follows `-fa`: on, off or auto (needed), nothing (none), or there is
    no `-fa` (gone).
    """

    flash_attn: Literal["on", "off", "auto"] = "on"
    flash_attn_value: Literal["needed", "none", "gone"] = "needed"
    fused_moe: bool = True
    n_gpu_layers: int = 999
    fit: bool = False
    auto_slots: int = 1
    memory: MemoryRules = MemoryRules()


TODAY = MemoryRules()
