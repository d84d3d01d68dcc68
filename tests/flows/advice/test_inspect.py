"""What a repo is shown as, with one model of it read."""

import pytest

from service.engine.errors import UnknownVariant
from service.errors import RateLimited
from service.flows.advice.repos import inspect
from service.flows.context import Context
from tests.flows.conftest import WatchedHub


def test_a_repo_is_shown_with_its_smallest_variant_read(context: Context, hub: WatchedHub) -> None:
    view = inspect(context, "local/gemma-3-12b-it-GGUF")
    assert [v.name for v in view.variants] == ["Q4_K_M"]
    assert view.other_files["mmproj"] == ["mmproj-F16.gguf"]
    assert view.model is not None
    assert (view.model.variant, view.model.architecture, view.model.n_layer) == ("Q4_K_M", "gemma3", 48)
    assert hub.read == ["Q4_K_M"]


def test_one_variant_of_many_can_be_named(context: Context, hub: WatchedHub) -> None:
    view = inspect(context, "Qwen/Qwen3-0.6B-GGUF", variant="q8_0")
    assert view.model is not None
    assert view.model.variant == "Q8_0"
    assert inspect(context, "Qwen/Qwen3-0.6B-GGUF:Q8_0").model == view.model
    with pytest.raises(UnknownVariant):
        inspect(context, "Qwen/Qwen3-0.6B-GGUF", variant="Q9_9")
    assert hub.listed == ["Qwen/Qwen3-0.6B-GGUF"]


def test_admission_is_asked_before_a_repo_never_read_here(context: Context, hub: WatchedHub) -> None:
    def refuse() -> None:
        raise RateLimited("too many new repos", retry_after=60)

    with pytest.raises(RateLimited):
        inspect(context, "Qwen/Qwen3-0.6B-GGUF", admit_new_repo=refuse)
    assert hub.listed == []
    inspect(context, "Qwen/Qwen3-0.6B-GGUF")
    assert inspect(context, "Qwen/Qwen3-0.6B-GGUF", admit_new_repo=refuse).model is not None
