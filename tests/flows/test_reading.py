"""What is added to an advice by how its variants were read."""

from __future__ import annotations

from service.engine.advise import advise
from service.engine.goal import Constraints, GoalRequest
from service.flows.reading import Models
from tests import rigs
from tests.engine.planner.asking import variant


def test_every_config_of_a_gated_repo_says_so_first() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {}, gated=True)
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    assert body.configs
    assert all("gated" in config.notes[0] for config in body.configs)


def test_a_variant_that_could_not_be_read_is_refused_on_every_engine() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {"Q8_0": "the file is truncated"})
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    refused = [(r.variant, r.kind, r.reason) for r in body.refused]
    assert refused == [("Q8_0", "unreadable", "the file is truncated")] * 2
