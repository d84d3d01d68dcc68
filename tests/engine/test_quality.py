"""The loss of quality that a header foretells, against what was published."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from service.engine.model import Model
from service.engine.quality import fitted, has_imatrix, mean_error, quality_loss, type_error
from tests.models import build

PUBLISHED = Path(__file__).parent.parent / "data" / "quality.jsonl"


def loss(name: str, mix: str) -> float:
    return quality_loss(build(name, mix)).expected


def test_more_bits_of_one_kind_lose_less() -> None:
    losses = [loss("Qwen3-32B", mix) for mix in ("q8_0", "q6_K", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k", "iq1_s")]
    assert losses == sorted(losses)
    assert losses[0] < 0.2 < 0.5 < losses[3] < 4 < losses[-1]


def test_a_file_in_16_bits_loses_nothing() -> None:
    assert quality_loss(build("Qwen3-32B", "bf16")).high == 0


def test_better_types_beat_larger_ones() -> None:
    """Published tables: IQ4_KS (4.25 bits) before Q4_0 (4.5), IQ5_KS (5.25) before Q5_1 (6.0)."""
    assert loss("Qwen3-32B", "iq4_ks") < loss("Qwen3-32B", "q4_0")
    assert loss("Qwen3-32B", "iq5_ks") < loss("Qwen3-32B", "q5_1")


def test_bits_in_attention_count_more_than_bits_in_experts() -> None:
    """Experts are 97 % of the weights of this model: the file with better attention is hardly larger."""
    spared = loss("Qwen3-235B-A22B", "attn=q8_0,*=iq3_s")
    assert spared < 0.85 * loss("Qwen3-235B-A22B", "iq3_s")


def test_repacked_types_lose_what_the_plain_ones_do() -> None:
    known = fitted()
    assert type_error("IQ4_KS_R4", known) == type_error("iq4_ks", known)
    assert type_error("iq1_s_r4", known) != type_error("iq1_s", known)


def test_experts_in_the_type_they_were_trained_in_are_no_loss() -> None:
    assert loss("gpt-oss-120b", "exps=mxfp4,*=q8_0") < 0.5
    assert loss("Qwen3-235B-A22B", "exps=mxfp4,*=q8_0") > 0.5


def test_experts_of_deepseek_v4_and_kimi_k3_are_no_loss_in_mxfp4() -> None:
    assert loss("DeepSeek-V4-Flash", "exps=mxfp4,*=q8_0") < 0.5
    assert loss("Kimi-K3", "exps=mxfp4,*=q8_0") < 0.5


def test_mxfp4_and_nvfp4_of_other_models_lose_more_than_better_types_of_their_size() -> None:
    """Published: MXFP4 experts have 1.8 times the divergence of Q4_K_M (Qwen3.5-35B-A3B)."""
    mxfp4, nvfp4 = (loss("Qwen3.5-35B-A3B", f"exps={kind},*=q8_0") for kind in ("mxfp4", "nvfp4"))
    assert mxfp4 > 1.3 * loss("Qwen3.5-35B-A3B", "q4_k_m")
    assert mxfp4 > nvfp4 > loss("Qwen3.5-35B-A3B", "exps=iq4_xs,*=q8_0")


def test_q4_0_of_a_model_that_was_trained_for_it_loses_less() -> None:
    plain = build("Llama-3.1-8B", "token_embd=q6_K,output=q6_K,*=q4_0")
    trained = msgspec.structs.replace(plain, name="Gemma 3 27b It Qat")
    by_finetune = msgspec.structs.replace(plain, metadata=plain.metadata | {"general.finetune": "it-qat"})

    assert quality_loss(trained).expected < 0.6 * quality_loss(plain).expected
    assert quality_loss(by_finetune).expected == quality_loss(trained).expected


@pytest.mark.parametrize(
    ("name", "trained_so"),
    [("Kimi-K2-Thinking", True), ("Kimi K2.6", True), ("Kimi-K2.5", True), ("Kimi-K2-Instruct-0905", False)],
)
def test_experts_of_kimi_trained_in_int4_are_no_loss_in_q4_0(name: str, trained_so: bool) -> None:
    model = msgspec.structs.replace(build("Kimi-K2-Instruct", "exps=q4_0,*=q8_0"), name=name)
    assert (quality_loss(model).expected < 0.5) is trained_so


def test_models_of_one_geometry_with_other_vocabularies_are_told_apart() -> None:
    """Llama 3 8B loses 2.5 times as much as Mistral 7B; both have 32 layers of width 4096."""
    llama = build("Llama-3.1-8B", "q4_k_m")
    mistral = msgspec.structs.replace(llama, n_vocab=32000)
    assert quality_loss(llama).expected > 2 * quality_loss(mistral).expected


@pytest.mark.parametrize(
    ("name", "published"), [("Llama-3.3-70B", 1.9), ("Qwen2.5-32B", 1.9), ("Llama-3.1-8B", 2.5), ("Qwen3.5-27B", 0.9)]
)
def test_the_loss_of_dense_models_is_near_what_was_published_for_q4_k_m(name: str, published: float) -> None:
    """Of Llama 3.3 70B a quarter was said; the published losses are with an importance matrix."""
    plain = build(name, "q4_k_m")
    model = msgspec.structs.replace(plain, metadata=plain.metadata | {"quantize.imatrix.file": "imatrix.dat"})
    expected = quality_loss(model)
    assert expected.low < published < expected.high
    assert 0.6 < expected.expected / published < 1.7


def test_q3_k_loses_more_than_iq3_s_of_the_same_bits() -> None:
    known = fitted()
    assert type_error("iq3_s", known) < type_error("q3_k", known)


def test_ternary_weights_of_a_model_trained_so_are_no_loss() -> None:
    mix = "token_embd=q6_K,output=q6_K,*="
    plain = build("Llama-3.1-8B", f"{mix}tq1_0")
    trained = msgspec.structs.replace(plain, name="Falcon3 7B Instruct 1.58bit")

    assert quality_loss(trained).expected < 2 < quality_loss(plain).expected
    assert loss("Llama-3.1-8B", f"{mix}iq2_bn") < 2


@pytest.mark.parametrize(("name", "kind"), [("Bonsai-8B", "q1_0_g128"), ("Ternary-Bonsai-8B", "q2_0")])
def test_weights_of_one_and_two_bits_that_a_model_was_trained_with_are_no_loss(name: str, kind: str) -> None:
    plain = build("Llama-3.1-8B", kind)
    assert quality_loss(msgspec.structs.replace(plain, name=name)).expected < 0.5 < 30 < quality_loss(plain).expected


def test_without_an_importance_matrix_more_is_lost_and_less_is_known() -> None:
    model = build("Qwen3-32B", "q4_k_m")
    with_matrix = Model(**{f: getattr(model, f) for f in model.__struct_fields__} | {
        "metadata": model.metadata | {"quantize.imatrix.file": "imatrix.dat"}
    })  # fmt: skip
    better, worse = quality_loss(with_matrix), quality_loss(model)
    assert better.expected < worse.expected
    assert better.high / better.expected < worse.high / worse.expected


def test_types_that_cannot_be_made_without_an_importance_matrix_have_one() -> None:
    assert has_imatrix(build("Qwen3-32B", "ffn_down=q3_K,attn=q4_K,*=iq2_xs"))
    assert not has_imatrix(build("Qwen3-32B", "q2_K"))


def test_a_type_that_nobody_measured_is_judged_by_its_bits() -> None:
    known = fitted()
    assert (
        type_error("tq1_0", known)
        > type_error("iq2_ks", known)
        > type_error("mxfp4", known)
        > type_error("q8_0", known)
    )


@pytest.mark.full
def test_the_fit_that_ships_is_the_fit_of_the_published_figures() -> None:
    import msgspec

    from bench.quality import points, shipped

    ours, refitted = fitted(), shipped(points())
    assert refitted.errors == pytest.approx(ours.errors, rel=0.02)
    assert refitted.mixture == pytest.approx(ours.mixture, abs=0.01)
    assert set(msgspec.structs.asdict(refitted)) == set(msgspec.structs.asdict(ours))


def test_published_files_of_one_model_are_in_the_order_of_their_perplexity() -> None:
    """Files that makers published with perplexities over 1 % apart; order by header, not by bits."""
    known, by_model = fitted(), dict[str, list[tuple[float, float]]]()
    names = {"ffn_down_exps": "expert_down", "ffn_gate_up_exps": "expert_gate_up", "attn": "attention",
             "shexp": "shared", "token_embd": "embedding", "output": "head"}  # fmt: skip
    for text in PUBLISHED.read_text().splitlines():
        row = json.loads(text)
        if row["metric"] != "perplexity" or row["kind"] != "curated" or "ffn_down_exps" not in row["types"]:
            continue
        if row["model"] == "Qwen3-30B-A3B":  # its IQ4_KS has a lower perplexity than its base: noise of another kind
            continue
        groups = {names[g]: ({t: 1.0} if isinstance(t, str) else t) for g, t in row["types"].items() if g in names}
        error = mean_error(groups, known, is_mixture=True)
        by_model.setdefault(row["model"], []).append((math.log1p(row["increase"]), error))
    pairs = [(a, b) for files in by_model.values() for a in files for b in files if a[0] - b[0] > 0.01]
    right = sum(a[1] > b[1] for a, b in pairs)
    assert len(pairs) > 100
    assert right / len(pairs) > 0.97
