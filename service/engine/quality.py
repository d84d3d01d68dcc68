"""Quality of a variant, estimated from its header: how much its quantisation raises perplexity over the 16-bit model.

ln(perplexity / that of the base) = scale * sum_g w_g * error_g / sum_g w_g, over the model's groups of tensors. error_g
is the geometric mean of its types' errors, weighted by their share of the weights: makers give few bits to layers that
tolerate it, so an arithmetic mean ranks mixes far worse. Routed experts hold some 95 % of the weights of a mixture and
less than half of its sensitivity, so bits per weight alone put many variants in the wrong order. Fitted to published
measurements (tests/data/quality.jsonl) by `python -m bench.quality --write`; docs/quality.md has the errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

import msgspec

from service.engine.architectures import architecture
from service.engine.errors import InvalidHeader
from service.engine.estimate import Z80, Estimate
from service.engine.ggml_types import type_named
from service.engine.kept import kept
from service.engine.model import Model
from service.engine.tables import table_of
from service.engine.tensor_names import role_of

_OWN_TYPES = frozenset({"iq1_s_r4", "iq1_m_r4"})  # not iq1_s and iq1_m with interleaved rows, but other quants
_SIXTEEN_BITS = frozenset({"f32", "f16", "bf16"})
_ONLY_WITH_A_MATRIX = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s"})  # tensor_requires_imatrix
# Types for weights that are -1, 0 or 1. The first have no scale for each block, so that they can store nothing else
# (ik_llama.cpp pull 12; microsoft/BitNet). llama-quantize writes the others from any model, and ruins those that were
# not trained with such weights (llama.cpp pull 8151, issue 15193).
_TERNARY_ONLY = frozenset({"i2_s", "iq1_bn", "iq2_bn"})
_TERNARY = frozenset({"tq1_0", "tq2_0", "q1_0", "q1_0_g128", "q2_0"})
_TRAINED_TERNARY = re.compile(r"bitnet|1\.58|trilm|ternary|bitcpm|bonsai", re.I)
# Trained for Q4_0 (Gemma QAT): of its files by Google, perplexity is at or below that of 16 bits (stduhpf's tables of
# Gemma 3), of others' it is not (llama.cpp pull 24603). Experts trained in int4, which Q4_0 holds: Kimi since K2
# Thinking (Kimi-K2.6: perplexity 1.8420 against 1.8419 in Q8_0; unsloth's guide).
_TRAINED_FOR_Q4_0 = re.compile(r"(?<![a-z])qat(?![a-z])", re.I)
_EXPERTS_OF_INT4 = re.compile(r"kimi[-_ ]?k2(?:[-_ ]thinking|\.[5-9])", re.I)
NOISE = 0.002  # of ln perplexity: sampling error of the published figures


class Scale(msgspec.Struct, frozen=True):
    """How sensitive models of a kind are: the ln increase with everything at IQ4_KS, and the spread of its logarithm.

    It is multiplied by (number of weights / ten billion) to the power of `exponent`.
    """

    at_iq4_ks: float
    spread: float
    exponent: float = 0.0


class KnownScale(msgspec.Struct, frozen=True):
    """The scale of a published model; `at_iq4_ks` as in Scale. `n_vocab`: where others share its geometry, else 0."""

    architecture: str
    n_layer: int
    n_embd: int
    n_vocab: int
    at_iq4_ks: float

    def is_of(self, model: Model) -> bool:
        """Whether the model has its geometry. Next-token blocks are not counted."""
        geometry = (model.architecture, model.n_layer - model.n_layer_nextn, model.n_embd)
        return (self.architecture, self.n_layer, self.n_embd) == geometry and self.n_vocab in (0, model.n_vocab)


class QualityModel(msgspec.Struct, frozen=True):
    """The fit. `errors` by type, IQ4_KS is 1; `fallback`: their logarithm as a polynomial of bits, highest power first.

    `weights`: sensitivity of each group at equal type, for mixtures and dense models; `tied`: of an embedding that is
    the head as well. `no_imatrix`: how much larger the increase is without an importance matrix. `scatter`: spread of
    the logarithm of the increase around the fit, below 3 %, below 10 % and above. `n_models`: fitted to so many.
    """

    errors: dict[str, float]
    fallback: tuple[float, ...]
    mixture: dict[str, float]
    dense: dict[str, float]
    tied: float
    mixture_scale: Scale
    dense_scale: Scale
    known: tuple[KnownScale, ...]
    known_spread: float
    no_imatrix: float
    no_imatrix_spread: float
    scatter: tuple[float, float, float]
    n_models: int


@cache
def fitted() -> QualityModel:
    """Return the fit that is shipped."""
    return table_of("quality.json", QualityModel)


def plain_type(name: str) -> str:
    """Return the type that a repacked one (`_r4`, `_r8`) holds, in lower case: the same weights in another order."""
    lower = name.lower()
    return lower if lower in _OWN_TYPES else re.sub(r"_r[48]$|_r16$", "", lower)


def loss_of_bits(bpw: float) -> float:
    """Return a rough loss in per cent by bits per weight alone, for answers that were stored without an estimate."""
    known = fitted()
    at = min(max(bpw, 1.5), 8.5)
    return 100 * math.expm1(known.mixture_scale.at_iq4_ks * _by_bits(at, known))


def quality_loss(model: Model) -> Estimate:
    """Return by how many per cent the variant's perplexity is higher than the 16-bit model's, with an 80 % interval.

    Never below zero. The interval covers the model's unknown sensitivity, which all variants of a model share:
    variants of one model are ordered far more surely than their intervals suggest.
    """
    known = fitted()
    basis = f"calibrated on {known.n_models} models"
    if all(tensor.type.lower() in _SIXTEEN_BITS for tensor in model.tensors if len(tensor.dims) > 1):
        return Estimate(0.0, 0.0, 0.0, basis)
    increase, spread = _increase(model)
    low = increase * math.exp(-Z80 * spread) - NOISE
    high = increase * math.exp(Z80 * spread) + NOISE
    percent = [100 * math.expm1(max(0.0, value)) for value in (low, increase, high)]
    return Estimate(percent[0], percent[1], percent[2], basis)


def ranking_loss(model: Model) -> float:
    """Return the loss in per cent by which variants are ranked. 16 bits count as Q8_0: nobody can tell them apart."""
    return 100 * math.expm1(_increase(model)[0])


@kept
def _increase(model: Model) -> tuple[float, float]:
    """The expected ln increase, and the spread of its logarithm."""
    known, is_mixture = fitted(), bool(model.moe_layers)
    scale, spread = _scale(model, known, is_mixture=is_mixture)
    increase = scale * mean_error(_types_by_group(model, is_mixture=is_mixture), known, is_mixture=is_mixture)
    if not has_imatrix(model):
        increase *= known.no_imatrix
        spread = math.hypot(spread, known.no_imatrix_spread)
    scatter = known.scatter[0 if increase < 0.03 else 1 if increase < 0.1 else 2]
    return increase, math.hypot(spread, scatter)


def mean_error(groups: Mapping[str, Mapping[str, float]], known: QualityModel, *, is_mixture: bool) -> float:
    """Return the error of a file as a whole, IQ4_KS everywhere being 1. `groups`: weights by type, by group."""
    weights = known.mixture if is_mixture else known.dense
    tied = "head" not in groups and not is_mixture
    total = weight = 0.0
    for group, types in groups.items():
        of_group = known.tied if tied and group == "embedding" else weights.get(group, 0.0)
        n = sum(types.values())
        total += of_group * math.exp(sum(count / n * math.log(type_error(t, known)) for t, count in types.items()))
        weight += of_group
    return total / weight if weight else 1.0


def type_error(name: str, known: QualityModel) -> float:
    """Return a type's error against IQ4_KS; by its bits where nothing was published. 16 bits count as Q8_0."""
    plain = "q8_0" if name in _SIXTEEN_BITS else plain_type(name)
    if plain in known.errors:
        return known.errors[plain]
    try:
        bits = type_named(name).bpw
    except InvalidHeader:
        bits = 4.5
    return _by_bits(bits, known)


def _by_bits(bits: float, known: QualityModel) -> float:
    return math.exp(sum(c * bits**power for power, c in enumerate(reversed(known.fallback))))


def _scale(model: Model, known: QualityModel, *, is_mixture: bool) -> tuple[float, float]:
    """The sensitivity and its spread: of published models of the same geometry, else of models of its kind and size."""
    alike = [math.log(k.at_iq4_ks) for k in known.known if k.is_of(model)]
    if alike:
        return math.exp(sum(alike) / len(alike)), known.known_spread
    usual = known.mixture_scale if is_mixture else known.dense_scale
    return usual.at_iq4_ks * (model.n_elements / 1e10) ** usual.exponent, usual.spread


def has_imatrix(model: Model) -> bool:
    """Return whether an importance matrix was used: llama-quantize writes `quantize.imatrix.*` since March 2024, and
    makes no file of certain types without one."""
    named = any(key.startswith("quantize.imatrix.") for key in model.metadata)
    return named or any(plain_type(tensor.type) in _ONLY_WITH_A_MATRIX for tensor in model.tensors)


def _types_by_group(model: Model, *, is_mixture: bool) -> dict[str, dict[str, float]]:
    """Weights by type in each group; norms, routers, next-token blocks and biases are left out.

    Leading dense layers of a mixture count a tenth of its shared experts, as in the fit.
    """
    groups: dict[str, dict[str, float]] = {}
    leading: dict[str, float] = {}
    for tensor in model.tensors:
        group = _group_of(tensor.name, is_mixture=is_mixture)
        if group is None or len(tensor.dims) < 2:
            continue
        into = leading if group == "leading" else groups.setdefault(group, {})
        name = _stored_type(model, group, tensor.type)
        into[name] = into.get(name, 0.0) + tensor.n_elements
    if leading:
        shared = groups.setdefault("shared", {})
        part = 0.1 * sum(shared.values()) / sum(leading.values()) if shared else 1.0
        for name, count in leading.items():
            shared[name] = shared.get(name, 0.0) + part * count
    return groups


def _stored_type(model: Model, group: str, name: str) -> str:
    """Return bf16 for weights in the type that they were trained in, which lose nothing: experts of four bits (model
    cards of gpt-oss, DeepSeek V4, Kimi), and ternary weights, known by their type or by the model's architecture or
    name. Q4_0 of a model that was trained for it is a type of its own."""
    plain, named = plain_type(name), _names(model)
    if plain in _TERNARY_ONLY or (plain in _TERNARY and _TRAINED_TERNARY.search(named)):
        return "bf16"
    in_type = architecture(model.architecture).trained_in_mxfp4 and plain == "mxfp4"
    if group.startswith("expert") and (in_type or (plain == "q4_0" and _EXPERTS_OF_INT4.search(named))):
        return "bf16"
    return "q4_0_qat" if plain == "q4_0" and _TRAINED_FOR_Q4_0.search(named) else name.lower()


@kept
def _names(model: Model) -> str:
    """What the header calls the model: the parts of its name too, as some files have no whole one."""
    parts = (model.metadata.get(f"general.{part}", "") for part in ("basename", "finetune"))
    return " ".join([model.architecture, model.name, *map(str, parts)])


def _group_of(name: str, *, is_mixture: bool) -> str | None:
    role = role_of(name)
    if role in ("attention", "recurrent"):
        return "attention"
    if role == "expert":
        return "expert_down" if ".ffn_down" in name else "expert_gate_up"
    if role == "dense_ffn":
        return "leading" if is_mixture else ("ffn_down" if ".ffn_down" in name else "ffn_gate_up")
    if role == "token_embd":
        return "embedding"
    return {"shared_expert": "shared", "output": "head"}.get(role)
