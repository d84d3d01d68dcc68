"""The fit: measured speeds against the speed model itself, in logarithms, with priors and one offset a rig.

Minimises, over the logarithms of the parameters and an offset for each rig, phase and place of work:
    sum of weight * (error / NOISE)^2, less for errors beyond the noise
    + sum of (logarithm of parameter / prior / its prior spread)^2 + sum of (offset / RIG)^2
by Gauss-Newton steps. The offsets keep rigs with many runs from bending what all share. No parameter passes its
physical limit (`least`). Derivatives are differences, taken where a row uses a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import mul
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from service.engine.calibration import Parameter

NOISE, RIG = 0.2, 0.2
_DOUBTFUL = 1.0  # noises: beyond, an error counts less and less (Cauchy weights)
_STEP, _LONGEST = 1e-4, 0.4
_STEPS_WITHOUT = 2  # of a fit without a group, from that of all

Vector = dict[int, float]
Values = dict[str, float]


class FitRow(Protocol):
    """One measured speed to fit: its weight, the key of its offset, and its error by some parameters."""

    @property
    def weight(self) -> float:
        """Its weight in the sum."""

    @property
    def offset(self) -> str:
        """The key of its offset: rows with the same key share one."""

    def error(self, p: Values) -> float:
        """Return the logarithm of predicted over measured speed."""
        ...


Row = TypeVar("Row", bound=FitRow)


class _Watched(dict[str, float]):
    """Values that remember which of them were asked for."""

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: float | None = None) -> float | None:  # type: ignore[override]
        return self[name] if name in self else default  # noqa: SIM401 (get is this)


class Slope(msgspec.Struct, frozen=True):
    """Error of a row at some parameters, and its derivative by the logarithm of each parameter that it uses."""

    error: float
    by: Vector


class Solution(msgspec.Struct, frozen=True):
    """Fitted values of all parameters, the offsets, and one standard deviation of each fitted logarithm."""

    values: Values
    offsets: dict[str, float]
    spreads: Values


class Fit(Generic[Row]):
    """A problem: rows and parameters. `names`: those that are fitted. `rig`: how far a rig may be from all others."""

    def __init__(self, rows: Sequence[Row], parameters: Mapping[str, Parameter], rig: float = RIG) -> None:
        self.rows, self.parameters, self.rig = rows, parameters, rig
        self.names = [n for n, p in parameters.items() if p.prior_spread]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.offsets = sorted({r.offset for r in rows})

    def start(self) -> Solution:
        """Return the priors as a solution."""
        return Solution({n: p.prior for n, p in self.parameters.items()}, dict.fromkeys(self.offsets, 0.0), {})

    def slopes(self, at: Solution) -> list[Slope]:
        return [self._slope(row, at.values) for row in self.rows]

    def _slope(self, row: Row, values: Values) -> Slope:
        watched = _Watched(values)
        error = row.error(watched)
        by: Vector = {}
        trial = dict(values)
        for name in watched.seen & self.index.keys():
            trial[name] = values[name] * (1 + _STEP)
            by[self.index[name]] = (row.error(trial) - error) / _STEP
            trial[name] = values[name]
        return Slope(error, by)

    def step(self, at: Solution, slopes: Sequence[Slope]) -> Solution:
        return self._stepped(at, self._pairs(slopes), _LONGEST)

    def without(self, at: Solution, slopes: Sequence[Slope], group: Callable[[Row], str]) -> dict[str, Values]:
        """Return, for each group, the values fitted without its rows, by two steps from the solution of all rows.

        The steps are not shortened: that would leave part of what only the group's rows had shown. Before the second,
        the weights of rows that are far off are computed again from the first step's errors; derivatives stay.
        """
        pairs, found = self._pairs(slopes), {}
        for name in sorted({group(row) for row in self.rows}):
            now, others = at, [(row, slope) for row, slope in pairs if group(row) != name]
            for _ in range(_STEPS_WITHOUT):
                then = self._stepped(now, others, math.inf)
                others = [(row, self._along(slope, now.values, then.values)) for row, slope in others]
                now = then
            found[name] = now.values
        return found

    def _stepped(self, at: Solution, pairs: Sequence[tuple[Row, Slope]], longest: float) -> Solution:
        normal = self._normal(at, pairs)
        move = solve(cholesky(normal.matrix), normal.right)
        offsets = {
            key: at.offsets[key] + (own.right - sum(a * move[i] for i, a in own.by.items())) / own.weight
            for key, own in normal.offsets.items()
        }
        return Solution(self._moved(at, move, longest), offsets, {})

    def _along(self, slope: Slope, now: Values, then: Values) -> Slope:
        """Return a row's error at other values, by its derivatives."""
        moved = sum(a * math.log(then[self.names[i]] / now[self.names[i]]) for i, a in slope.by.items())
        return Slope(slope.error + moved, slope.by)

    def _moved(self, at: Solution, move: Sequence[float], longest: float) -> Values:
        values = dict(at.values)
        for name, i in self.index.items():
            bounded = max(min(move[i], longest), -longest)
            values[name] = max(values[name] * math.exp(bounded), self.parameters[name].least)
        return values

    def spreads(self, at: Solution, slopes: Sequence[Slope]) -> Values:
        """Return one standard deviation of the logarithm of every fitted parameter at a solution."""
        inverse = _inverse_diagonal(cholesky(self._normal(at, self._pairs(slopes)).matrix))
        return {name: math.sqrt(inverse[i]) for name, i in self.index.items()}

    def _pairs(self, slopes: Sequence[Slope]) -> list[tuple[Row, Slope]]:
        return list(zip(self.rows, slopes, strict=True))

    def _normal(self, at: Solution, pairs: Sequence[tuple[Row, Slope]]) -> _Normal:
        """Return the normal equations of the parameters. The offsets are eliminated: each has an equation of its
        own."""
        size = len(self.names)
        matrix, right = [[0.0] * size for _ in range(size)], [0.0] * size
        for name, i in self.index.items():
            known = self.parameters[name]
            matrix[i][i] = known.prior_spread**-2
            right[i] = -math.log(at.values[name] / known.prior) / known.prior_spread**2
        offsets = {key: _Offset(self.rig**-2, -at.offsets[key] / self.rig**2, {}) for key in self.offsets}
        for row, slope in pairs:
            own = offsets[row.offset]
            error = slope.error + at.offsets[row.offset]
            weight = row.weight / NOISE**2 / (1 + (error / NOISE / _DOUBTFUL) ** 2)
            own.weight += weight
            own.right -= weight * error
            for i, a in slope.by.items():
                own.by[i] = own.by.get(i, 0.0) + a * weight
            _add(matrix, right, slope.by, weight, -error * weight)
        for own in offsets.values():
            _add(matrix, right, own.by, -1 / own.weight, -own.right / own.weight)
        return _Normal(matrix, right, offsets)


class _Offset(msgspec.Struct):
    """The equation of one rig's offset: its own weight, right side, and coefficients of the parameters."""

    weight: float
    right: float
    by: Vector


class _Normal(NamedTuple):
    """Normal equations: the lower triangle of their matrix, their right side, and those of the offsets."""

    matrix: list[list[float]]
    right: list[float]
    offsets: dict[str, _Offset]


def _add(matrix: list[list[float]], right: list[float], by: Vector, weight: float, scale: float) -> None:
    """Add a vector times itself to the lower triangle, and the vector to the right side."""
    cells = list(by.items())
    for i, a in cells:
        line, scaled = matrix[i], a * weight
        for j, b in cells:
            if j <= i:
                line[j] += scaled * b
        right[i] += a * scale


def cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lower triangle L of a positive definite matrix: L times its transpose is the matrix.

    A line of L begins with as many zeros as that of the matrix: most parameters have no row in common with the first.
    """
    lower: list[list[float]] = []
    for i, line in enumerate(matrix):
        first = next((j for j in range(i) if line[j]), i)
        row = [0.0] * first
        for j in range(first, i):
            other = lower[j]
            row.append((line[j] - sum(map(mul, row, other))) / other[j])
        row.append(math.sqrt(line[i] - sum(map(mul, row, row))))
        lower.append(row)
    return lower


def solve(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return x of L L^T x = right."""
    size = len(right)
    y: list[float] = []
    for i in range(size):
        y.append((right[i] - sum(map(mul, lower[i], y))) / lower[i][i])
    for i in reversed(range(size)):
        y[i] /= lower[i][i]
        value = y[i]
        y[:i] = [a - b * value for a, b in zip(y[:i], lower[i], strict=False)]
    return y


def _inverse_diagonal(lower: Sequence[Sequence[float]]) -> list[float]:
    """Return the diagonal of the inverse of L L^T: the squared lengths of the columns of L's inverse."""
    found = []
    for first in range(len(lower)):
        column = [1 / lower[first][first]]
        for line in lower[first + 1 :] if any(line[first] for line in lower[first + 1 :]) else ():
            column.append(-sum(map(mul, line[first:], column)) / line[first + len(column)])
        found.append(sum(map(mul, column, column)))
    return found
