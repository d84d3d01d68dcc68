"""Progress of an advice: what is said, how often, and what it says of the time that is left."""

from __future__ import annotations

from service.flows.advice.reading import Pace


class Said:
    """What a Pace said, by a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.words: list[str] = []
        self.shares: list[float] = []
        self.pace = Pace(self._say, lambda: self.now)

    def _say(self, words: str, share: float) -> None:
        self.words.append(words)
        self.shares.append(share)


def test_a_stage_is_said_with_its_count_at_most_twice_a_second() -> None:
    said = Said()
    for number in range(1, 11):
        said.now += 0.25
        said.pace("comparing variants", number, 10)
    assert said.words == [f"comparing variants: {n} of 10" for n in (1, 3, 5, 7)] + [
        "comparing variants: 9 of 10, about 4 s left"
    ]


def test_a_new_stage_is_said_at_once_and_the_share_only_grows() -> None:
    said = Said()
    said.pace("comparing variants", 1, 2)
    said.pace("placing configs", 1, 14)
    for number in range(2, 15):
        said.now += 1
        said.pace("placing configs", number, 14)
    assert said.words[1] == "placing configs: 1 of 14"
    assert said.shares == sorted(said.shares)
    assert 0 <= said.shares[0] < said.shares[-1] < 1


def test_the_time_left_is_that_of_the_share_that_is_left() -> None:
    said = Said()
    said.now = 9.0
    said.pace("placing configs", 1, 14)
    assert said.words == ["placing configs: 1 of 14, about 11 s left"]
