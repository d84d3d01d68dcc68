"""What a GPU day measures, in which order, and that both engines can be told to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from rig.gpu_models import can_fill, file_name, weights, write_model
from rig.gpu_plan import Machine, estimate, plan
from service.engine.commands.parse import parse
from service.engine.commands.render import render
from service.engine.engines import engine_spec
from service.engine.ggml_types import tensor_bytes, type_named
from service.engine.gguf.header import Tensor
from service.engine.run_flags import to_flags
from service.wire.measuring.agent import RunDocument, RunFile
from tests.models import build, build_header
from workers.agent.arguments import sweep_rows
from workers.agent.models import content_sha256

NO_CARD = Machine(cards=(), threads=8, engines=("llama.cpp", "ik_llama.cpp"))
TWO_CARDS = Machine(cards=(24 << 30, 24 << 30), threads=16, engines=("llama.cpp", "ik_llama.cpp"))
KNOWN_HERE = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "iq4_xs",
              "iq3_xxs", "iq3_s", "iq2_xxs", "iq2_s", "iq1_s", "mxfp4")  # fmt: skip


@pytest.mark.parametrize("machine", [NO_CARD, TWO_CARDS])
def test_an_engine_is_built_before_its_first_step_and_no_step_comes_twice(machine: Machine) -> None:
    steps = plan(machine)
    names = [step.id for step in steps]
    assert len(set(names)) == len(names)
    for engine in machine.engines:
        own = [step.kind for step in steps if step.engine == engine]
        assert (own[0], own.count("build")) == ("build", 1)


def test_without_a_card_everything_is_measured_on_the_cpu() -> None:
    assert {(step.cards, step.flags.n_gpu_layers) for step in plan(NO_CARD) if step.kind != "build"} == {((), 0)}
    assert {step.about for step in plan(NO_CARD)} == {"build", "memory", "types", "threads", "batches", "experts"}


def test_with_cards_what_no_engine_prints_comes_first_and_hops_fit_into_half_an_hour_with_engines_that_are_built() -> (
    None
):
    steps = plan(TWO_CARDS)
    assert next(step for step in steps if step.kind != "build").kind == "memory"
    until = next(i for i, step in enumerate(steps) if step.id == "splits llama.cpp q4_0 2 cards ub512 -sm tensor")
    assert sum(estimate(step, TWO_CARDS, written=True) for step in steps[: until + 1]) < 30 * 60
    assert {step.about for step in steps} >= {"memory", "types", "copies", "splits", "batches", "caches", "experts"}


@pytest.mark.parametrize("machine", [NO_CARD, TWO_CARDS])
def test_every_step_is_a_command_that_means_its_flags_again_and_has_room_for_its_rows(machine: Machine) -> None:
    for step in plan(machine):
        if step.kind == "build":
            continue
        flags = to_flags(step.flags)
        for tool in ("server", "bench"):
            parsed = parse(render(step.engine, tool, flags, model_path="m.gguf"), step.engine)
            assert not parsed.refused, step.id
            assert parsed.flags.n_ubatch == step.flags.n_ubatch
            assert parsed.flags.op_offload == step.flags.op_offload
        document = RunDocument(
            engine=step.engine, repo="a/b", revision="a" * 40, files=(RunFile(path="m.gguf", size=1, sha256="a" * 64),),
            flags=step.flags, depths=step.depths, n_prompt=step.n_prompt, n_gen=step.n_gen, seconds=step.seconds,
            engine_builds=("a" * 64,), gpus=step.cards,
        )  # fmt: skip
        _, last = sweep_rows(document)
        assert abs(last - max(step.depths)) <= step.flags.n_ubatch
        assert step.flags.n_ctx >= max(step.depths) + step.n_prompt + step.n_gen


def test_only_types_that_the_engine_loads_and_that_can_be_filled_are_measured() -> None:
    for step in plan(TWO_CARDS):
        for tensor in build(step.model, step.mix).tensors if step.model else ():
            assert engine_spec(step.engine).types.loads(type_named(tensor.type))
            assert can_fill(tensor.type)


@pytest.mark.parametrize("kind", KNOWN_HERE)
def test_random_weights_are_finite_and_of_the_size_that_models_have(kind: str) -> None:
    tensor = Tensor("blk.0.ffn_up.weight", kind, (4096, 64), 0, tensor_bytes(kind, (4096, 64)))
    data = np.frombuffer(weights(tensor, np.random.default_rng(1)), np.uint8).reshape(64, -1)
    values = dequantize(data, GGMLQuantizationType[kind.upper()])
    assert np.isfinite(values).all()
    assert 0.01 < values.std() < 0.03
    assert abs(values.mean()) < 0.003


def test_rows_of_types_with_a_factor_in_front_begin_with_it() -> None:
    tensor = Tensor("blk.0.ffn_up.weight", "iq4_ks", (1024, 8), 0, tensor_bytes("iq4_ks", (1024, 8)))
    data = np.frombuffer(weights(tensor, np.random.default_rng(1)), np.uint8).reshape(8, -1)
    assert np.allclose(data[:, :4].copy().view(np.float32), 1.5e-5)
    assert len({row[4:].tobytes() for row in data}) == 8


def test_states_decay_and_an_expert_stands_once_in_a_tokens_row() -> None:
    (decay,) = [t for t in build_header("Mamba-Codestral-7B@1", "q4_k_m").tensors if t.name.endswith(".ssm_a")]
    assert set(np.frombuffer(weights(decay, np.random.default_rng(1)), np.float32)) == {-1}
    (table,) = [t for t in build_header("DeepSeek-V4-Flash@1", "q4_k_m").tensors if t.type == "i32"]
    rows = np.frombuffer(weights(table, np.random.default_rng(1)), np.int32).reshape(-1, table.dims[0])
    assert (np.diff(np.sort(rows)) > 0).all()


def test_a_model_is_written_once_and_its_hash_is_that_of_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.models._CUT_VOCABULARY", 512)
    path, sha256 = write_model(tmp_path, "Qwen3-0.6B@1", "token_embd=q5_1,*=q4_0")
    assert path.name == file_name("Qwen3-0.6B@1", "token_embd=q5_1,*=q4_0")
    assert content_sha256(path) == sha256
    before = path.stat().st_mtime_ns
    assert write_model(tmp_path, "Qwen3-0.6B@1", "token_embd=q5_1,*=q4_0") == (path, sha256)
    assert path.stat().st_mtime_ns == before


def test_a_cut_model_has_the_first_layers_and_a_small_vocabulary() -> None:
    whole, cut = build("Qwen3-30B-A3B", "q4_0"), build("Qwen3-30B-A3B@3", "q4_0")
    assert (cut.n_layer, cut.n_vocab, cut.n_expert) == (3, 32_768, whole.n_expert)
    assert cut.by_name["blk.2.ffn_up_exps.weight"].dims == whole.by_name["blk.2.ffn_up_exps.weight"].dims
    assert "blk.3.attn_q.weight" not in cut.by_name
