"""What is added to an advice by how its variants were read."""

from __future__ import annotations

from service.engine.advise import advise
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.units import MIB
from service.flows.advice.reading import Models
from service.hub.listing import OtherFile
from tests import rigs
from tests.engine.planner.asking import variant


def test_every_config_of_a_gated_repo_says_so_first() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {}, gated=True)
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    assert body.configs
    assert all("gated" in config.notes[0] for config in body.configs)


def test_a_repo_with_a_projector_says_that_it_is_not_counted_and_what_it_takes() -> None:
    """Of 24,576 MiB a Qwen3.8-27B took 23,392, and its projector 887 more (joryirving/home-ops pull 9075)."""
    projector = OtherFile("mmproj-F16.gguf", "mmproj", 887 * MIB)
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {}, projector=projector)
    for hardware, where in ((rigs.ONE_3090_DESKTOP, "CUDA0"), (parse_hardware("no GPU, 64GB"), "RAM")):
        body = models.advised(advise, hardware, GoalRequest(), Constraints())
        said = f"add `--mmproj mmproj-F16.gguf`, which takes 887 MiB of {where} and more for its buffers"
        assert all(said in config.notes[-1] for config in body.configs)


def test_a_variant_that_could_not_be_read_is_refused_on_every_engine() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {"Q8_0": "the file is truncated"})
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    refused = [(r.variant, r.kind, r.reason) for r in body.refused]
    assert refused == [("Q8_0", "unreadable", "the file is truncated")] * 2


def test_the_search_reports_how_far_it_is() -> None:
    heard: list[tuple[str, int, int]] = []
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {})
    models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints(), report=lambda *said: heard.append(said))
    assert [said[0] for said in heard[:3]] == ["comparing variants", "comparing variants", "placing configs"]
    placing = [done for stage, done, _ in heard if stage == "placing configs"]
    assert placing == sorted(placing)
    assert all(1 <= done <= of for _, done, of in heard)
