"""Loss of quality by quantisation, predicted against published: `python -m bench.quality`; `--write` keeps the fit.

The model is that of `service.engine.quality`. Group weights and type errors are fitted jointly to published figures
(tests/data/quality.jsonl), with one free scale for each model and metric (ln of perplexity over the base's, mean KLD).
Each model is then predicted by a fit without it (its mixes and its tables both left out), next to a free curve of bits
per weight alone (piecewise linear, twelve knots, the same treatment of the scale).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from bench.stamp import stamp
from service.engine.estimate import Z80
from service.engine.ggml_types import type_named
from service.engine.quality import NOISE as SAMPLING
from service.engine.quality import KnownScale, QualityModel, Scale, fitted, plain_type

Floats = npt.NDArray[np.float64]

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "tests" / "data" / "quality.jsonl"
FITTED = ROOT / "service" / "engine" / "data" / "quality.json"

# Perplexity says nothing of quality there: quantised files below their base, chat-only models, trained in four bits.
UNUSABLE = {"gemma-4-31B-it", "GLM-4.7-Flash", "gemma-3-27b-it-qat-q4_0-unquantized", "Qwen3-30B-A3B"}
WITHOUT_ERROR = {"iq1_bn", "iq2_bn", "q8_k", "q8_kv"}  # types of BitNet models, and of activations and caches
# Weights of the dense models of the data in billions: their scale falls with size.
BILLIONS = {
    "Qwen3.5-0.8B": 0.8, "Qwen3.5-2B": 2, "Qwen3.5-4B": 4, "Qwen3.5-9B": 9, "Qwen3.5-27B": 27, "Qwen3.6-27B": 27,
    "Qwen3.8-27B": 27, "Qwen3-4B-Instruct-2507": 4, "Qwen3-4B-Thinking-2507": 4, "Llama-3.1-8B-Instruct": 8,
    "Meta-Llama-3-8B": 8, "Llama-3.3-70B-Instruct": 70.6, "Mistral-7B": 7.2, "EXAONE-3.5-7.8B-Instruct": 7.8,
    "Qwen2.5-0.5B-Instruct": 0.5, "Qwen2.5-1.5B-Instruct": 1.5, "Qwen2.5-Coder-7B-Instruct": 7.6,
    "Qwen2.5-32B-Instruct": 32.8,
}  # fmt: skip
# Geometry by the models' published config.json: architecture, blocks, width, and tokens where others share the rest.
GEOMETRY: dict[str, tuple[str, int, int, int]] = {
    "DeepSeek-R1-0528": ("deepseek2", 61, 7168, 129280), "DeepSeek-V3.1": ("deepseek2", 61, 7168, 129280),
    "GLM-4.5": ("glm4moe", 92, 5120, 0), "GLM-4.6": ("glm4moe", 92, 5120, 0), "GLM-4.5-Air": ("glm4moe", 46, 4096, 0),
    "GLM-5.1": ("glm-dsa", 78, 6144, 0), "Ling-1T": ("bailingmoe2", 80, 8192, 0),
    "Qwen3-235B-A22B-Thinking-2507": ("qwen3moe", 94, 4096, 0),
    "Qwen3-Coder-480B-A35B-Instruct": ("qwen3moe", 62, 6144, 0),
    "Qwen3.5-35B-A3B": ("qwen35moe", 40, 2048, 0), "Qwen3.5-122B-A10B": ("qwen35moe", 48, 3072, 0),
    "Qwen3.5-397B-A17B": ("qwen35moe", 60, 4096, 0),
    "Qwen3-4B-Instruct-2507": ("qwen3", 36, 2560, 0), "Qwen3.5-0.8B": ("qwen35", 24, 1024, 0),
    "Qwen3.5-2B": ("qwen35", 24, 2048, 0), "Qwen3.5-4B": ("qwen35", 32, 2560, 0),
    "Qwen3.5-9B": ("qwen35", 32, 4096, 0), "Qwen3.5-27B": ("qwen35", 64, 5120, 0),
    "Qwen3.6-27B": ("qwen35", 64, 5120, 0), "Qwen3.8-27B": ("qwen35", 64, 5120, 0),
    "Llama-3.1-8B-Instruct": ("llama", 32, 4096, 128256), "Meta-Llama-3-8B": ("llama", 32, 4096, 128256),
    "Llama-3.3-70B-Instruct": ("llama", 80, 8192, 128256), "Mistral-7B": ("llama", 32, 4096, 32000),
    "EXAONE-3.5-7.8B-Instruct": ("exaone", 32, 4096, 0), "Qwen2.5-0.5B-Instruct": ("qwen2", 24, 896, 0),
    "Qwen2.5-1.5B-Instruct": ("qwen2", 28, 1536, 0), "Qwen2.5-Coder-7B-Instruct": ("qwen2", 28, 3584, 0),
    "Qwen2.5-32B-Instruct": ("qwen2", 64, 5120, 0),
}  # fmt: skip
# Where the fit starts, and is drawn to where data is thin: shares in published tensor-by-tensor KLDs of 26 models.
PRIOR = {
    "mixture": {"expert_down": 0.13, "expert_gate_up": 0.22, "attention": 0.33, "shared": 0.18, "embedding": 0.03,
                "head": 0.11},
    "dense": {"attention": 0.32, "ffn_down": 0.18, "ffn_gate_up": 0.31, "embedding": 0.03, "head": 0.16},
    "tied": {"embedding": 0.30},
}  # fmt: skip
NAMES = {
    "ffn_down_exps": "expert_down", "ffn_gate_up_exps": "expert_gate_up", "attn": "attention", "shexp": "shared",
    "ffn_down": "ffn_down", "ffn_gate_up": "ffn_gate_up", "token_embd": "embedding", "output": "head",
}  # fmt: skip
KNOTS = np.array([1.5, 1.9, 2.3, 2.7, 3.1, 3.5, 4.0, 4.5, 5.0, 5.5, 6.5, 8.5])
SLOTS = [(kind, group) for kind, weights in PRIOR.items() for group in weights]
PRIOR_SPREAD, SCATTER, NOISE, NOISE_DENSE_KLD, LEAST, MOST = 0.5, 0.15, 0.004, 0.0015, 0.0025, 1.2
# 15 published pairs with and without an importance matrix: median 1.36, spread of the logarithm 0.25.
NO_IMATRIX, NO_IMATRIX_SPREAD = 1.36, 0.25
# Against IQ4_KS, of types in no table of tensor types. Rounding normal values to them leaves 2.4 and 1.6 times the
# squared error of IQ4_NL. Published: experts in MXFP4 beside Q8_0 have 1.8 times the mean KLD of Q4_K_M, and MXFP4
# nearly everywhere 3.9 times (Qwen3.5-35B-A3B); experts in NVFP4 beside Q8_0 lose about what Q4_K_M does, which has
# fewer bits in the rest (llama.cpp pulls 25446, 22196).
BY_ROUNDING = {"mxfp4": 2.4, "nvfp4": 1.5}
QAT = 0.46  # Q4_0 of models trained for it loses so much of what others lose (Google's announcement of Gemma 3 QAT)
SCATTER_BY_SIZE = (0.25, 0.21, 0.15)  # as in QualityModel
KNOWN_SPREAD = 0.25  # of one model's scale around another's of its geometry (R1 and V3.1, GLM 4.5 and 4.6)


class Point(NamedTuple):
    """One published file: `increase` of ln perplexity, or its mean KLD; shares of types by group."""

    model: str
    metric: str
    kind: str
    increase: float
    bpw: float
    moe: bool
    groups: dict[str, dict[str, float]]

    @property
    def slots(self) -> dict[int, dict[str, float]]:
        """Shares of types by slot: a group of this kind of model."""
        kind = "mixture" if self.moe else "dense"
        tied = not self.moe and "head" not in self.groups
        return {
            SLOTS.index(("tied", g) if tied and g == "embedding" else (kind, g)): types
            for g, types in self.groups.items()
        }


def points() -> list[Point]:
    """Return the published figures that the fit uses; repacked types, which print the same figure, count once."""
    rows = [json.loads(line) for line in PUBLISHED.read_text().splitlines()]
    mixed = {row["model"] for row in rows if "ffn_down_exps" in row["types"]}
    found: dict[str, Point] = {}
    for row in rows:
        moe = row["model"] in mixed
        groups = _groups(row["types"], moe=moe)
        types = {kind for shares in groups.values() for kind in shares}
        value = math.log1p(row["increase"]) if row["metric"] == "perplexity" else row["increase"]
        least = LEAST if row["metric"] == "kld" else -0.01
        if (
            row["imatrix"] is False
            or row["model"] in UNUSABLE
            or types & WITHOUT_ERROR
            or not least < value <= MOST
            or row["bpw"] is None
        ):
            continue
        point = Point(row["model"], row["metric"], row["kind"], value, row["bpw"], moe, groups)
        once = (row["model"], row["metric"], groups) if row["kind"] == "group0" else (len(found),)
        found.setdefault(json.dumps(once, sort_keys=True), point)
    counts = Counter((p.model, p.metric) for p in found.values())
    return [p for p in found.values() if counts[p.model, p.metric] >= 4]


def _groups(published: dict[str, Any], *, moe: bool) -> dict[str, dict[str, float]]:
    """Shares of the plain types in each group; a mixture's leading dense layers count a tenth of its shared experts."""
    groups: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, types in published.items():
        group, factor = NAMES[name], 1.0
        if moe and group.startswith("ffn_"):
            group, factor = "shared", 0.1 if "shexp" in published else 1.0
        shares = {types: 1.0} if isinstance(types, str) else types
        for kind, share in shares.items():
            plain = "q8_0" if kind in ("f32", "f16", "bf16") else plain_type(kind)
            groups[group][plain] += factor * share
    return {g: {t: v / sum(s.values()) for t, v in s.items()} for g, s in groups.items()}


class Fit:
    """Group weights, type errors and scales by robust least squares, with relative scatter and a floor of noise."""

    def __init__(self, data: Sequence[Point]) -> None:
        self.types = sorted({t for p in data for shares in p.groups.values() for t in shares})
        self.keys = sorted({(p.model, p.metric) for p in data})
        self.y = np.array([p.increase for p in data])
        self.noise = np.array([NOISE_DENSE_KLD if p.metric == "kld" and not p.moe else NOISE for p in data])
        self.which = np.array([self.keys.index((p.model, p.metric)) for p in data])
        self.shares, self.has = self.design(data)
        both = [m for m in sorted({k[0] for k in self.keys}) if {(m, "kld"), (m, "perplexity")} <= set(self.keys)]
        self.pairs = [(self.keys.index((m, "kld")), self.keys.index((m, "perplexity"))) for m in both]
        self.weights0 = np.log([PRIOR[kind][group] for kind, group in SLOTS])
        self.types0 = np.array([math.log(30 * 2 ** (-1.75 * type_named(t).bpw)) for t in self.types])
        self.slot, self.type = slice(0, len(SLOTS)), slice(len(SLOTS), len(SLOTS) + len(self.types))
        self.scale = slice(self.type.stop, self.type.stop + len(self.keys))
        start = np.concatenate([self.weights0, self.types0, self._first_scales()])
        found = least_squares(self._residuals, start, jac=self._slopes, loss="soft_l1", f_scale=1.5, max_nfev=200)
        self.theta: Floats = found.x

    def design(self, data: Sequence[Point]) -> tuple[Floats, Floats]:
        """Return shares (file, slot, type), and whether a file has a slot."""
        shares, has = np.zeros((len(data), len(SLOTS), len(self.types))), np.zeros((len(data), len(SLOTS)))
        for i, point in enumerate(data):
            for slot, types in point.slots.items():
                has[i, slot] = 1
                for name, share in types.items():
                    if name in self.types:
                        shares[i, slot, self.types.index(name)] = share
        return shares, has

    def parts(self, theta: Floats, shares: Floats, has: Floats) -> tuple[Floats, Floats, Floats]:
        """Return each slot's part of the sensitivity, its error, and the error of the file."""
        part = has * np.exp(theta[self.slot])
        part = part / part.sum(axis=1, keepdims=True)
        errors = np.exp(shares @ theta[self.type]) * has
        return part, errors, (part * errors).sum(axis=1)

    def errors_of(self, data: Sequence[Point]) -> Floats:
        """Return the logarithm of the error of each file."""
        return np.log(self.parts(self.theta, *self.design(data))[2])

    def scales(self) -> dict[tuple[str, str], float]:
        """Return the logarithm of each model's scale by metric, in the units of the type errors."""
        return dict(zip(self.keys, self.theta[self.scale], strict=True))

    def _first_scales(self) -> Floats:
        theta = np.concatenate([self.weights0, self.types0])
        error = self.parts(theta, self.shares, self.has)[2]
        chosen = [(self.which == i) & (self.y > NOISE) for i in range(len(self.keys))]
        return np.array([np.median(np.log(self.y[c] / error[c])) if c.any() else 0.0 for c in chosen])

    def _residuals(self, theta: Floats) -> Floats:
        scales = theta[self.scale]
        predicted = np.exp(scales)[self.which] * self.parts(theta, self.shares, self.has)[2]
        own = (self.y - predicted) / np.sqrt((SCATTER * predicted) ** 2 + self.noise**2)
        prior = [(theta[self.type] - self.types0) / 2, (theta[self.slot] - self.weights0) / PRIOR_SPREAD]
        same = np.array([(scales[i] - scales[j]) / 0.5 for i, j in self.pairs])
        return np.concatenate([own, *prior, [scales.mean() / 0.01], same])

    def _slopes(self, theta: Floats) -> Floats:
        part, errors, total = self.parts(theta, self.shares, self.has)
        scale = np.exp(theta[self.scale])[self.which]
        predicted, n = scale * total, len(self.y)
        variance = (SCATTER * predicted) ** 2 + self.noise**2
        down = -1 / np.sqrt(variance) - (self.y - predicted) * SCATTER**2 * predicted / variance**1.5
        own, prior = np.zeros((n, len(theta))), np.zeros((len(self.types) + len(SLOTS) + 1, len(theta)))
        own[:, self.slot] = (scale * down)[:, None] * part * (errors - total[:, None])
        own[:, self.type] = (scale * down)[:, None] * np.einsum("ig,igt->it", part * errors, self.shares)
        own[np.arange(n), self.scale.start + self.which] = down * predicted
        prior[: len(self.types), self.type] = np.eye(len(self.types)) / 2
        prior[len(self.types) : -1, self.slot] = np.eye(len(SLOTS)) / PRIOR_SPREAD
        prior[-1, self.scale] = 1 / len(self.keys) / 0.01
        same = np.zeros((len(self.pairs), len(theta)))
        for row, (i, j) in zip(same, self.pairs, strict=True):
            row[self.scale.start + i], row[self.scale.start + j] = 2, -2
        return np.vstack([own, prior, same])


class BitsFit:
    """What is compared: the logarithm of the error as a free, piecewise linear curve of bits per weight."""

    def __init__(self, data: Sequence[Point]) -> None:
        self.keys = sorted({(p.model, p.metric) for p in data})
        which = np.array([self.keys.index((p.model, p.metric)) for p in data])
        y, hats = np.array([p.increase for p in data]), self._hats(data)

        def residuals(theta: Floats) -> Floats:
            predicted = np.exp(hats @ theta[: len(KNOTS)] + theta[len(KNOTS) :][which])
            own = (y - predicted) / np.sqrt((SCATTER * predicted) ** 2 + NOISE**2)
            return np.concatenate([own, [theta[len(KNOTS) :].mean() / 0.01], np.diff(theta[: len(KNOTS)], 2) / 2])

        start = np.concatenate([-1.3 * math.log(2) * KNOTS, np.zeros(len(self.keys))])
        self.theta: Floats = least_squares(residuals, start, loss="soft_l1", f_scale=1.5, max_nfev=100).x

    @staticmethod
    def _hats(data: Sequence[Point]) -> Floats:
        bits = np.clip([p.bpw for p in data], KNOTS[0], KNOTS[-1])
        return np.array([np.interp(bits, KNOTS, row) for row in np.eye(len(KNOTS))]).T

    def errors_of(self, data: Sequence[Point]) -> Floats:
        """Return the logarithm of the error of each file."""
        return self._hats(data) @ self.theta[: len(KNOTS)]

    def scales(self) -> dict[tuple[str, str], float]:
        """Return the logarithm of each model's scale by metric."""
        return dict(zip(self.keys, self.theta[len(KNOTS) :], strict=True))


class Errors(NamedTuple):
    """Of models left out: |error| of ln increase with known scale, one anchor, unseen; whether pairs are in order."""

    known: list[float]
    anchored: list[float]
    unseen: list[float]
    pairs: list[bool]
    close_pairs: list[bool]
    held: dict[bool, list[bool]]  # by whether it is a mixture: whether the 80 % interval of an unseen model holds


def usual_scale(scales: dict[str, float], moe: dict[str, bool], model: str) -> float:
    """Return the logarithm of the scale of a model by those of other models: dense by size, mixtures their mean."""
    others = {m: s for m, s in scales.items() if moe[m] == moe[model] and kin(m) != kin(model)}
    if moe[model]:
        return statistics.fmean(others.values())
    slope, level = by_size(others)
    return level + slope * math.log(BILLIONS[model] / 10)


def kin(model: str) -> tuple[str, int, int, int] | str:
    """Return what models of one geometry share: three releases of 27 billion are no three witnesses of their size."""
    return GEOMETRY.get(model, model)


def by_size(scales: dict[str, float]) -> tuple[float, float]:
    """Return slope and level of the logarithm of dense models' scales by that of their tens of billions of weights."""
    alike = Counter(kin(m) for m in scales)
    sizes = [math.log(BILLIONS[m] / 10) for m in scales]
    slope, level = np.polyfit(sizes, list(scales.values()), 1, w=[alike[kin(m)] ** -0.5 for m in scales])
    return float(slope), float(level)


def left_out(data: Sequence[Point], fit: Callable[[Sequence[Point]], Fit | BitsFit]) -> Errors:
    """Return the errors for each model by a fit without it, for increases of perplexity over 1 %."""
    moe, errors = {p.model: p.moe for p in data}, Errors([], [], [], [], [], {True: [], False: []})
    for model in sorted({p.model for p in data if p.metric == "perplexity"}):
        tested = [p for p in data if p.model == model and p.metric == "perplexity"]
        found = fit([p for p in data if kin(p.model) != kin(model)])
        scales = {m: s for (m, metric), s in found.scales().items() if metric == "perplexity"}
        predicted, usual = found.errors_of(tested), usual_scale(scales, moe, model)
        errors.held[moe[model]].extend(
            holds(p.increase, e + usual, moe=p.moe) for p, e in zip(tested, predicted, strict=True)
        )
        for a, b in itertools.combinations(range(len(tested)), 2):
            y, z = tested[a].increase, tested[b].increase
            if abs(y - z) > 0.006 + 0.1 * max(y, z):
                right = bool((predicted[a] - predicted[b]) * (y - z) > 0)
                errors.pairs.append(right)
                if abs(tested[a].bpw - tested[b].bpw) < 0.4:
                    errors.close_pairs.append(right)
        apart = [math.log(p.increase) - e for p, e in zip(tested, predicted, strict=True) if p.increase > 0.01]
        if len(apart) >= 3:
            middle = statistics.median(apart)
            errors.known.extend(abs(d - middle) for d in apart)
            errors.anchored.extend(abs(a - b) for a, b in itertools.permutations(apart, 2))
            errors.unseen.extend(abs(d - usual) for d in apart)
    return errors


def holds(increase: float, predicted: float, *, moe: bool) -> bool:
    """Return whether the interval that the engine prints around a prediction (a logarithm) holds what was published."""
    scale, size = (fitted().mixture_scale if moe else fitted().dense_scale), math.exp(predicted)
    spread = Z80 * math.hypot(scale.spread, SCATTER_BY_SIZE[0 if size < 0.03 else 1 if size < 0.1 else 2])
    return size * math.exp(-spread) - SAMPLING <= increase <= size * math.exp(spread) + SAMPLING


def shipped(data: Sequence[Point]) -> QualityModel:
    """Return the fit to all data, as the engine reads it."""
    fit = Fit(data)
    types = dict(zip(fit.types, fit.theta[fit.type], strict=True))
    reference = types["iq4_ks"]
    moe = {p.model: p.moe for p in data}
    scales = {m: s + reference for (m, metric), s in fit.scales().items() if metric == "perplexity"}
    mixtures = [s for m, s in scales.items() if moe[m]]
    slope, level = by_size({m: s for m, s in scales.items() if not moe[m]})
    apart = {kin(m): scales[m] - usual_scale(scales, moe, m) for m in scales if not moe[m]}
    weights = {slot: math.exp(w) for slot, w in zip(SLOTS, fit.theta[fit.slot], strict=True)}
    total = {kind: sum(w for (k, _), w in weights.items() if k == kind) for kind in PRIOR}
    groups = {k: {g: round(w / total[k], 4) for (kind, g), w in weights.items() if kind == k} for k in PRIOR}
    bits = [type_named(t).bpw for t in types]
    curve = np.polyfit(bits, [e - reference for e in types.values()], 2)
    errors = {t: math.exp(e - reference) for t, e in types.items()}
    errors |= BY_ROUNDING | {"q4_0_qat": QAT * errors["q4_0"]}
    return QualityModel(
        errors={t: round(e, 4) for t, e in sorted(errors.items(), key=lambda item: item[1])},
        fallback=tuple(round(float(c), 5) for c in curve),
        mixture=groups["mixture"],
        dense=groups["dense"],
        tied=round(weights["tied", "embedding"] / total["dense"], 4),
        mixture_scale=Scale(round(math.exp(statistics.fmean(mixtures)), 5), round(statistics.stdev(mixtures), 3)),
        dense_scale=Scale(
            round(math.exp(level), 5),
            round(math.sqrt(statistics.fmean(a * a for a in apart.values())), 3),
            round(slope, 3),
        ),
        known=tuple(KnownScale(*GEOMETRY[m], round(math.exp(s), 5)) for m, s in scales.items() if m in GEOMETRY),
        known_spread=KNOWN_SPREAD,
        no_imatrix=NO_IMATRIX,
        no_imatrix_spread=NO_IMATRIX_SPREAD,
        scatter=SCATTER_BY_SIZE,
        n_models=len(moe),
    )


def line(name: str, e: Errors) -> str:
    """Return one row of the table."""
    middle = [f"{100 * statistics.median(part):.1f} / {100 * float(np.quantile(part, 0.9)):.0f}" for part in e[:3]]
    pairs = f"{100 * statistics.fmean(e.pairs):.1f} % of {len(e.pairs):,}"
    close = f"{100 * statistics.fmean(e.close_pairs):.1f} % of {len(e.close_pairs):,}"
    held = " / ".join(f"{100 * statistics.fmean(e.held[moe]):.0f}" for moe in (False, True))
    return f"{name:24}{middle[0]:>14}{middle[1]:>14}{middle[2]:>14}{pairs:>18}{close:>17}{held:>14}"


def main() -> None:
    """Print the errors, or write the fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {FITTED.relative_to(ROOT)}")
    data = points()
    if parser.parse_args().write:
        FITTED.write_bytes(msgspec.json.format(msgspec.json.encode(shipped(data)), indent=1) + b"\n")
        return
    models = {p.model for p in data}
    print(f"{stamp()}: {len(data):,} published figures of {len(models)} models; each predicted without its model")
    print(
        "increase of ln perplexity over 1 %: median / 90th percentile of its relative error, in %; pairs of one model; "
        "how many of unseen dense models / mixtures lie in the 80 % interval, in %"
    )
    names = f"{'scale known':>14}{'one anchor':>14}{'unseen':>14}{'pairs in order':>18}{'within 0.4 bpw':>17}"
    print(f"{'':24}{names}{'in interval':>14}")
    print(line("types by group", left_out(data, Fit)))
    print(line("bits per weight alone", left_out(data, BitsFit)))


if __name__ == "__main__":
    main()
