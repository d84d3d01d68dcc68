"""An inspection as people read it: a model's layers by what they look like, within the width of a terminal."""

from __future__ import annotations

from service.wire.advice.repo import RepoView, VariantView, model_view
from service.wire.advice.repo_text import render_repo
from service.wire.plain_text import WIDTH
from tests.models import build


def printed(shape: str, mix: str, *variants: str) -> str:
    listed = [VariantView(name=name, files=[], n_bytes=None) for name in variants]
    model = model_view(variants[0], build(shape, mix))
    return render_repo(
        RepoView(repo="someone/Model-GGUF", revision="0" * 40, variants=listed, other_files={}, model=model)
    )


def test_layers_that_look_the_same_are_shown_once_wherever_they_are() -> None:
    text = printed("Gemma-3-12B", "q4_K_M", "Q4_K_M")
    heads = [line.partition(":")[0] for line in text.splitlines() if line.startswith("layer")]
    assert 2 <= len(heads) <= 4
    assert any(", " in head for head in heads)


def test_every_layer_is_named_once_and_no_line_is_wider_than_a_terminal() -> None:
    text = printed("DeepSeek-R1-0528", "q2_k", "Q2_K")
    assert "\nlayers 0-2: attention" in text
    assert "\nlayers 3-" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_how_to_see_another_variant_is_said_where_there_is_one() -> None:
    assert "another variant: someone/Model-GGUF:Q8_0" in printed("Qwen3-14B", "q4_K_M", "Q4_K_M", "Q8_0")
    assert "another variant" not in printed("Qwen3-14B", "q4_K_M", "Q4_K_M")
