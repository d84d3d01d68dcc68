"""A service that is gone is asked again soon, then less and less often, and never by all at once."""

from __future__ import annotations

from workers.agent.lease import pause_after


def test_pauses_grow_from_about_a_second_to_twenty_each_drawn_by_chance() -> None:
    for n_failures, middle in ((1, 1.0), (2, 2.0), (5, 16.0), (6, 20.0), (10_000, 20.0)):
        drawn = [pause_after(n_failures) for _ in range(50)]
        assert all(middle / 2 <= pause <= middle * 1.5 for pause in drawn)
        assert len(set(drawn)) > 1
