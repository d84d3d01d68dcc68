"""What a fuzzing campaign found worth keeping: each is a header or a refusal, whole, in pieces, and by jumps."""

from __future__ import annotations

import random

import pytest

from bench.fuzz_headers import CORPUS, Campaign, attempt, mutated


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    """A campaign begun: it reads the corpus in every way."""
    return Campaign(seed=1)


def test_everything_that_was_kept_is_read_or_refused(campaign: Campaign) -> None:
    assert len(list(CORPUS.glob("*.bin"))) > 20
    assert campaign.failures == []
    assert campaign.counts["read"] > 10


def test_a_step_of_the_parser_that_none_took_is_seen(campaign: Campaign) -> None:
    assert len(campaign.coverage) > 320


def test_a_slice_of_the_campaign_finds_nothing(campaign: Campaign) -> None:
    rng = random.Random(7)
    for _ in range(500):
        data = mutated(rng, campaign.pool)
        assert not attempt(rng.choice(campaign.readers), data, rng).startswith("FAILED")
