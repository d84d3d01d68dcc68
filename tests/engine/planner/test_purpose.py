"""Models that write no text: for embeddings, for ranking, by diffusion."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.advice import AdvisedConfig
from service.engine.catalogue import resolve
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest, resolve_goal
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.planner.search.options import wanted_flags
from service.engine.planner.search.outcome import SearchCase
from service.engine.run_flags import closed
from service.engine.side_by_side import served
from service.wire.advice.card import card_of
from tests.engine.planner.asking import ask, first
from tests.models import build

SMALL_CARD = Hardware(gpus=[Gpu(name="RTX 3060 12GB")], cpu=Cpu(model="Ryzen 5 5600"), ram=Ram(total_gb=32))
LLAMA: Engine = "llama.cpp"
MEAN, LAST = 1, 3  # llama.h, enum llama_pooling_type


def advised(model: str, *keep: str) -> AdvisedConfig:
    limits = Constraints(engines=[EngineChoice(LLAMA)], keep_flags=list(keep))
    return first(ask(model, "q8_0", hardware=SMALL_CARD, constraints=limits))


def words(config: AdvisedConfig) -> list[str]:
    return config.commands.server.split()


@pytest.mark.parametrize(
    ("model", "word"),
    [("Qwen3-Embedding-0.6B", "--embedding"), ("bge-m3", "--embedding"), ("bge-reranker-v2-m3", "--reranking")],
)
def test_the_server_is_told_what_a_model_without_text_is_for(model: str, word: str) -> None:
    config = advised(model)

    assert word in words(config)
    assert "--jinja" not in words(config)
    assert any("TG says nothing" in note for note in config.notes)


def test_input_of_a_model_that_reads_it_at_once_fits_one_micro_batch() -> None:
    assert advised("bge-m3").flags.n_ubatch == 8192
    assert advised("bge-m3").flags.n_batch == 8192
    assert advised("bge-m3", "-ub 1024").flags.n_ubatch == 1024


@pytest.mark.parametrize("pooling", [MEAN, LAST])
def test_every_token_of_an_embedding_model_has_an_output(pooling: int) -> None:
    """`-wgt` of ik_llama.cpp, which reserves fewer, is for models that write text."""
    plain = build("Qwen3-Embedding-0.6B", "q8_0")
    model = replace(plain, metadata=plain.metadata | {"qwen3.pooling_type": pooling})
    goal = resolve_goal(GoalRequest(), model.n_ctx_train)
    case = SearchCase("ik_llama.cpp", 0, model, resolve(SMALL_CARD), goal, Constraints())
    fields = wanted_flags(case).fields

    assert fields["n_logits"] is None
    assert ("n_ubatch" in fields) is (pooling == MEAN)


def test_models_that_read_one_micro_batch_after_the_other_get_usual_ones() -> None:
    for model in ("Qwen3-Embedding-0.6B", "Qwen3-Reranker-0.6B"):
        assert advised(model).flags.n_ubatch <= 2048


def test_an_embedding_model_is_ranked_and_praised_by_how_it_reads() -> None:
    body = ask("Qwen3-Embedding-0.6B", "q8_0", hardware=SMALL_CARD)

    assert "t/s of input" in body.headline
    assert (body.goal.depth, body.goal.output) == (0, 1)
    assert "goal.depth" in {one.field for one in body.assumed}


def test_no_speed_of_writing_is_told_of_several_requests_or_in_other_programs_files() -> None:
    body = ask("Qwen3-Embedding-0.6B", "q8_0", hardware=SMALL_CARD, goal=GoalRequest(preset="batch"))
    config = first(body)

    assert not any("in total" in note for note in config.notes)
    assert "t/s of input" in served("embedding", config).remarks[0]


def test_fewer_bits_that_read_no_faster_are_not_called_faster() -> None:
    body = ask("Qwen3-Embedding-0.6B", "q8_0", "q4_k_m", hardware=SMALL_CARD)
    assert {config.variant for config in body.configs} == {"q8_0", "q4_k_m"}
    card = card_of(body)
    assert card is not None
    assert "times as fast" not in card.why


def test_a_depth_that_the_user_states_for_an_embedding_model_is_kept() -> None:
    body = ask("Qwen3-Embedding-0.6B", "q8_0", hardware=SMALL_CARD, goal=GoalRequest(depth=2000))

    assert body.goal.depth == 2000
    assert "goal.depth" not in {one.field for one in body.assumed}


def test_a_model_that_keeps_no_cache_is_not_offered_types_of_it() -> None:
    body = ask("bge-m3", "q8_0", hardware=SMALL_CARD)
    assert {config.flags.cache_type_k for config in body.configs} == {"f16"}


def test_the_output_head_that_an_embedding_architecture_lacks_takes_no_logits() -> None:
    for engine in ("llama.cpp", "ik_llama.cpp"):
        config = first(ask("bge-m3", "q8_0", hardware=SMALL_CARD, engine=engine))
        assert config.devices[0].compute_mib < 1024


def test_an_engine_whose_server_cannot_rank_is_refused_for_rerankers() -> None:
    (refused,) = ask("bge-reranker-v2-m3", "q8_0", hardware=SMALL_CARD).refused
    assert refused.engine == "ik_llama.cpp"
    assert "--reranking" in refused.reason


def test_diffusion_models_are_refused_with_the_program_that_runs_them() -> None:
    body = ask("LLaDA-8B", "q4_k_m", hardware=SMALL_CARD)

    assert body.configs == []
    assert "llama-diffusion-cli" in body.headline


def test_a_host_may_measure_an_embedding_model_without_the_words_of_its_server() -> None:
    assert closed(advised("Qwen3-Embedding-0.6B").flags).dropped == ("--embedding",)
