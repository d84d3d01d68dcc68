"""Published speeds as rows that `service.engine.speed.fitting` fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from bench.runs import Test, author_of, kind_of
from service.engine.speed.fitting import Values
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import Machine
from service.engine.speed.predict import bound_machine, prompt_seconds
from service.engine.speed.sums import work_of
from service.engine.speed.work import Work

_MEDIUM = 0.6  # weight of runs whose record is not of high quality


class Row(msgspec.Struct, frozen=True):
    """One published speed to fit: its test, the work of its config, its weight and the key of its offset."""

    test: Test
    work: Work
    weight: float
    offset: str

    def machine(self, p: Values) -> Machine:
        """Return the machine of the run, as its binding to sockets leaves it."""
        s = self.test.setup
        return bound_machine(s.whole or s.rig, s.devices, self.test.flags, p, s.binding)

    def log_seconds(self, p: Values) -> float:
        """Return the logarithm of the predicted seconds a token."""
        test, machine = self.test, self.machine(p)
        if test.phase == "TG":
            return math.log(sum(token_seconds(self.work, machine, p, test.depth + test.n // 2).values()))
        return math.log(prompt_seconds(self.work, machine, p, test.depth, test.n)[0] / test.n)

    def error(self, p: Values) -> float:
        """Return the logarithm of predicted over observed speed."""
        return -self.log_seconds(p) - math.log(self.test.observed)


def rows_of_tests(tests: Iterable[Test]) -> list[Row]:
    """Return the tests as rows, every case of a group with the same weight, groups with its square root."""
    found = list(tests)
    count = Counter((t.setup.case["id"], t.phase) for t in found)
    cases = Counter(t.setup.group for t in {t.setup.case["id"]: t for t in found}.values())
    rows = []
    for test in found:
        setup = test.setup
        weight = 2 / math.sqrt(cases[setup.group]) / count[setup.case["id"], test.phase] * 3
        weight *= 1.0 if setup.case["quality"] == "high" else _MEDIUM
        work = work_of(test.run)
        place = "CPU" if work.host_layers else kind_of(test.placement)
        cards = sorted({(c.name, c.backend) for c in setup.rig.cards})
        offset = f"{author_of(setup.case)} {setup.rig.cpu_model} {cards} {test.phase} {place}"
        rows.append(Row(test, work, weight, offset))
    return rows
