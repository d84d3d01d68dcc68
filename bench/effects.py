"""Effects of flags and choices that people measured, next to the predicted ones: `python -m bench.effects`.

An effect is how many times faster the second of two configs is (tests/data/speed_effects.jsonl): two published runs, or
two commands for a ratio that is known from text only. It comes out right when the predicted ratio lies within a factor
1.3 of the measured one (1.6 for those from text) and has its sign, where the measured ratio is beyond 1.05. Those that
do not are `known` with their cause.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.conformal import guess
from bench.fit import Row, rows_of_tests
from bench.runs import Setup, Test, setups, tests_of
from bench.stamp import stamp
from service.engine.builds import BuildAsked
from service.engine.calibration import shipped
from service.engine.catalogue import engine_devices, resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.hardware import Hardware
from service.engine.run.placement import place
from tests.models import build

DATA = Path(__file__).parent.parent / "tests" / "data" / "speed_effects.jsonl"
_WITHIN, _WITHIN_TEXT, _NO_EFFECT = 1.3, 1.6, 1.05
_PROMPT = 2_048


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One effect: `runs` (two cases of perf.jsonl at `depth`), or two `commands` and the `measured` ratio of a text.

    `n_ubatch`, `n`, `n_gpu_layers` choose the line of a llama-bench table. `date`: of the build. `known`: why it does
    not come out.
    """

    id: str
    what: str
    phase: str
    source: str
    depth: int = 0
    runs: tuple[str, str] | None = None
    n_ubatch: int | None = None
    n: int | None = None
    n_gpu_layers: tuple[int, int] | None = None
    measured: float | None = None
    engine: Engine = "ik_llama.cpp"
    model: str = ""
    mix: str = ""
    mix_b: str | None = None
    hardware: Hardware | None = None
    hardware_b: Hardware | None = None
    commands: tuple[str, str] | None = None
    date: str | None = None
    known: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """An effect with the ratio that was measured and the one predicted."""

    effect: Effect
    measured: float
    predicted: float

    @property
    def right(self) -> bool:
        """Return whether the predicted ratio is close enough and has the same sign."""
        within = _WITHIN if self.effect.runs else _WITHIN_TEXT
        near = abs(math.log(self.predicted / self.measured)) <= math.log(within)
        matters = abs(math.log(self.measured)) > math.log(_NO_EFFECT)
        return near and (not matters or (self.predicted > 1) == (self.measured > 1))


def effects() -> list[Effect]:
    """Return all effects."""
    return [msgspec.json.decode(line, type=Effect) for line in DATA.read_text().splitlines()]


def outcome(effect: Effect) -> Outcome:
    """Return what was measured and what is predicted by the shipped parameters."""
    sides = [_row(effect, side) for side in (0, 1)]
    errors = [guess(row, dict(shipped().coefficients)).error for row in sides]
    observed = [row.test.observed for row in sides]
    measured = effect.measured or observed[1] / observed[0]
    return Outcome(effect, measured, observed[1] / observed[0] * math.exp(errors[1] - errors[0]))


def _row(effect: Effect, side: int) -> Row:
    test = _published(effect, side) if effect.runs else _written(effect, side)
    return rows_of_tests([test])[0]


def _published(effect: Effect, side: int) -> Test:
    case = (effect.runs or ("", ""))[side]
    setup = next(s for s in setups()[0] if s.case["id"] == case)
    layers = effect.n_gpu_layers[side] if effect.n_gpu_layers else None
    found = [
        t
        for t in tests_of(setup, every=True)
        if t.phase == effect.phase
        and effect.n in (None, t.n)
        and effect.n_ubatch in (None, t.flags.n_ubatch)
        and layers in (None, t.flags.n_gpu_layers)
    ]
    return min(found, key=lambda t: abs(t.depth - effect.depth))


def _written(effect: Effect, side: int) -> Test:
    """Return a command as a test with an observed speed of 1, since only the predicted ratio counts."""
    command = (effect.commands or ("", ""))[side]
    asked = BuildAsked(date=effect.date) if effect.date else None
    flags = parse(command, effect.engine, build=asked).flags
    hardware = (side and effect.hardware_b) or effect.hardware or Hardware(gpus=[])
    rig = resolve(hardware)
    model = build(effect.model, (side and effect.mix_b) or effect.mix)
    devices = engine_devices(rig, effect.engine, tuple(range(len(rig.cards))))
    setup = Setup(
        {"id": effect.id, "quality": "high"},
        effect.id,
        effect.engine,
        model,
        flags,
        rig,
        devices,
        effect.date,
    )
    n = 128 if effect.phase == "TG" else max(_PROMPT, flags.n_ubatch)
    placement = place(effect.engine, model, flags, [d.free for d in devices])
    return Test(setup, effect.phase, n, effect.depth, 1.0, flags, placement)


def report() -> Iterator[str]:
    """Yield the table, and how many are right."""
    found = [outcome(effect) for effect in effects()]
    yield "| effect | | measured | predicted | |"
    yield "|---|---|---|---|---|"
    for one in found:
        mark = "" if one.right else "**off**"
        basis = "" if one.effect.runs else " (text)"
        what = f"{one.effect.id}: {one.effect.what}{basis}"
        yield f"| {what} | {one.effect.phase} | x{one.measured:.2f} | x{one.predicted:.2f} | {mark} |"
    right = sum(one.right for one in found)
    yield f"\n{right} of {len(found)} ({right / len(found) * 100:.0f} %) come out right."


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("Effects, measured and predicted.", stamp(), "\n")
    print("\n".join(report()))


if __name__ == "__main__":
    main()
