"""Headers of several variants: a damaged one is set aside, a Hub that fails stops everything."""

from collections.abc import Callable

import pytest

from service.engine.advice import AdviceBody
from service.engine.errors import InvalidHeader, NotGguf
from service.engine.gguf import Header
from service.engine.goal import Constraints, EngineChoice, GoalRequest, resolve_goal
from service.engine.hardware import Hardware
from service.engine.versions import versions
from service.flows.reading import read_models
from service.hub import HubUnavailable, RepoFile, RepoListing, Variant
from tests.models import build_header

NAMES = ("Q2_K", "Q4_K_M", "Q8_0")
LISTING = RepoListing("o/n", "f" * 40, tuple(Variant(n, (RepoFile(f"{n}.gguf", 1, None),)) for n in NAMES))
HEADER = build_header("Qwen3-0.6B", "q8_0")


class ScriptedHub:
    """Answers as the test says."""

    def __init__(self, answer: Callable[[str], Header]) -> None:
        self.answer = answer

    def read_header(self, listing: RepoListing, variant: Variant) -> Header:
        return self.answer(variant.name)


def damaged(*names: str) -> ScriptedHub:
    def answer(name: str) -> Header:
        if name in names:
            raise NotGguf(f"{name} is no GGUF")
        return HEADER

    return ScriptedHub(answer)


def read(hub: ScriptedHub, steps: list[str] | None = None):  # type: ignore[no-untyped-def]
    return read_models(hub, LISTING, LISTING.variants, (steps if steps is not None else []).append)  # type: ignore[arg-type]


def test_models_come_in_the_order_of_the_variants_with_their_files() -> None:
    steps: list[str] = []
    models = read(damaged(), steps)
    assert [v.name for v in models.variants] == list(NAMES)
    assert models.variants[1].files.paths == ("Q4_K_M.gguf",)
    assert models.variants[1].files.repo == "o/n"
    assert steps == [f"reading header {n} of 3" for n in (1, 2, 3)]


def test_a_damaged_variant_is_refused_by_name_and_the_others_are_advised() -> None:
    models = read(damaged("Q4_K_M"))
    assert [v.name for v in models.variants] == ["Q2_K", "Q8_0"]
    body = AdviceBody(
        headline="",
        hardware=Hardware(gpus=[]),
        assumed=[],
        goal=resolve_goal(GoalRequest(), 32_768),
        configs=[],
        refused=[],
        considered=0,
        versions=versions(),
    )
    refused = models.with_refusals(body, Constraints(engines=[EngineChoice("llama.cpp")])).refused
    assert [(r.variant, r.engine, r.reason) for r in refused] == [("Q4_K_M", "llama.cpp", "Q4_K_M is no GGUF")]
    assert len(models.with_refusals(body, Constraints()).refused) == 2


def test_when_every_variant_is_damaged_the_first_says_why() -> None:
    with pytest.raises(InvalidHeader, match="Q2_K is no GGUF"):
        read(damaged(*NAMES))


def test_a_hub_that_fails_stops_everything() -> None:
    def answer(name: str) -> Header:
        raise HubUnavailable("down", retry_after=5)

    with pytest.raises(HubUnavailable):
        read(ScriptedHub(answer))
