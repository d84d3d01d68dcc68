"""The best of some steps is found with little time, and the same state always gives the same next trials."""

import random

import pytest

from service.engine.estimate import Estimate
from service.engine.tune import SHORTEST, Next, Trial, Tried, next_trials


def measured(trial: Trial, seconds: float, spread: float) -> Tried:
    noise = spread * seconds
    return Tried(trial.step, trial.rung, Estimate(seconds - noise, seconds, seconds + noise, "measured"), trial.seconds)


def run(true: list[float | None], budget: float, spread: float = 0.001) -> tuple[Next, list[Tried]]:
    """Measure what is asked for, one trial at a time, until it is over."""
    tried: list[Tried] = []
    while True:
        asked = next_trials(len(true), tried, budget)
        if not asked.trials:
            return asked, tried
        trial = asked.trials[0]
        seconds = true[trial.step]
        done = Tried(trial.step, trial.rung, None, 5.0) if seconds is None else measured(trial, seconds, spread)
        tried.append(done)


def test_the_fastest_is_found_and_said_to_be_clear() -> None:
    over, tried = run([10.0, 9.5, 8.0, 12.0, 11.0, 9.0], 1200)
    assert (over.best, over.why) == (2, "the best is clear: its slowest repeat beats the second's fastest")
    assert sum(t.spent for t in tried) <= 1200


def test_what_is_not_clear_is_measured_longer() -> None:
    over, tried = run([10.0, 9.9, 9.8, 9.7, 9.6, 9.5, 9.4, 9.3, 9.2], 3600, spread=0.2)
    assert over.best == 8
    assert {t.rung for t in tried} == {0, 1}
    lengths = {t.rung: t.spent for t in tried}
    assert lengths[1] > 2 * lengths[0]
    assert len([t for t in tried if t.rung == 1]) == 3


def test_a_step_that_fails_is_out_and_the_others_go_on() -> None:
    assert run([10.0, None, 8.0, None], 1200)[0].best == 2


def test_when_every_step_fails_there_is_no_best() -> None:
    assert run([None, None], 1200)[0] == Next((), None, "every step failed")


def test_one_that_ran_alone_is_the_best() -> None:
    assert run([None, 7.0, None], 1200)[0] == Next((), 1, "it is the only one that ran")


@pytest.mark.parametrize("budget", [30, 100, 300, 1000, 5000])
def test_the_budget_is_kept_and_the_start_is_always_measured(budget: float) -> None:
    over, tried = run([10.0] * 18, budget, spread=0.3)
    assert sum(t.spent for t in tried) <= budget + SHORTEST
    assert tried[0].step == 0
    assert over.best is not None


def test_asking_again_after_a_restart_goes_on_where_it_was() -> None:
    true: list[float | None] = [float(n) for n in random.Random(7).sample(range(5, 40), 12)]
    over, tried = run(true, 2400, spread=0.1)
    for known in range(len(tried)):
        first = next_trials(12, tried[:known], 2400).trials[0]
        assert (first.step, first.rung) == (tried[known].step, tried[known].rung)
    assert over.best == min(range(12), key=lambda i: true[i] or 0)
