"""An inspection as people read it: a model's layers by what they look like, within the width of a terminal."""

from __future__ import annotations

from service.wire.advice.repo import CostView, HeaderView, RepoView, VariantView, model_view
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


def test_one_header_is_one_header() -> None:
    header = HeaderView(n_bytes=6_900_000, n_tensors=1, bpw=4.5, bytes_by_type={"q4_K": 1}, by_jump=False)
    listed = [VariantView(name=name, files=[], n_bytes=None, header=header) for name in ("Q4_K_M", "Q8_0")]
    for variants, said in ((listed[:1], "read 1 header of 6.9 MB"), (listed, "read 2 headers of 13.8 MB")):
        view = RepoView(repo="a/b", revision="0" * 40, variants=variants, other_files={}, cost=CostView(1, 0, 0.2))
        assert said in render_repo(view)
