"""The list of all rules, and what they find, in the order that matters to whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from service.engine.rules import (
    attention,
    batches,
    companions,
    eras,
    fitting,
    host,
    overrides,
    spelling,
    splits,
    tensors,
)
from service.engine.rules.case import Case
from service.engine.rules.found import Finding, Found

Rule = Callable[[Case], Iterator[Found]]

RULES: tuple[Rule, ...] = (
    fitting.does_not_fit,
    tensors.experts_left_on_gpu,
    fitting.ram_too_small,
    tensors.cannot_load,
    spelling.unknown_flag,
    spelling.retired_flag,
    eras.option_too_new,
    eras.flash_attention_value,
    spelling.cache_type_unknown,
    spelling.split_mode_unknown,
    overrides.override_refused,
    overrides.device_unknown,
    splits.main_gpu_unknown,
    splits.graph_split_impossible,
    splits.graph_split_partial_experts,
    splits.split_refused_by_llama_cpp,
    companions.remote_devices,
    companions.next_token_layers,
    attention.quantised_v_without_flash_attention,
    attention.latent_cache_types_differ,
    attention.cache_type_without_gpu_kernel,
    tensors.up_gate_apart,
    tensors.type_without_gpu_kernel,
    tensors.experts_in_ram_needlessly,
    tensors.repacked_with_large_micro_batch,
    batches.micro_batch_below_threshold,
    batches.batch_below_micro_batch,
    overrides.override_matches_nothing,
    overrides.override_never_wins,
    overrides.override_ignored,
    attention.mla_off,
    splits.none_with_several_gpus,
    splits.shares_without_gpu,
    splits.split_left_to_chance,
    eras.copies_of_ram,
    fitting.fit_left_on,
    host.threads,
    spelling.obsolete_op_numbers,
    companions.not_counted,
    companions.speeds_without_draft,
    splits.cpu_moe_by_share,
    splits.split_mode_approximate,
    attention.mla_without_effect,
    attention.amb_without_effect,
    attention.v_type_without_effect,
    eras.option_gone_since,
    eras.older_build,
    spelling.context_unset,
    spelling.varied,
    host.device_order_unknown,
)
_SEVERITIES = ("error", "warning", "info")


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Return findings with errors first; those of one severity keep their order."""
    return sorted(found, key=lambda one: _SEVERITIES.index(one.severity))


def findings(case: Case, explain: Literal["pp", "tg"] | None = None) -> list[Finding]:
    """Return what is wrong with a command: errors first, then by what it costs, then as in the list of rules.

    `explain`: the phase that was measured slower than expected; findings that cost it come first.
    """
    found = [one for rule in RULES for one in rule(case)]
    return [one.finding for one in sorted(found, key=lambda one: _rank(one, explain))]


def _rank(one: Found, explain: Literal["pp", "tg"] | None) -> tuple[int, float]:
    cost = {"pp": one.pp, "tg": one.tg, None: max(one.pp, one.tg)}[explain]
    return _SEVERITIES.index(one.finding.severity), -cost
