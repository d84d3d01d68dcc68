"""Small exchanges that make a placement faster: the pieces of one block, or of two, lie otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import sub
from typing import NamedTuple, TypeAlias

from service.engine.planner.sums import Arrangement, Group, Sums, Where

_SHOWN = 20
_Groups: TypeAlias = dict[tuple[Group, Where], list[int]]


class _Move(NamedTuple):
    """One block of a group that lies otherwise: the seconds and bytes that it takes more on each device."""

    seconds: float
    n_bytes: tuple[int, ...]
    group: Group
    source: Where
    target: Where


def exchanged(sums: Sums, one: Arrangement, left: Sequence[int], gain: float) -> list[Arrangement]:
    """Return what one or two moves make of a placement in at least `gain` seconds less, the fastest first.

    `left`: bytes on each device. What is too large alone goes with another move that makes room for it. Of placements
    with another copy from RAM, the first card's room changes by that.
    """
    groups = _groups(sums, one)
    moves = sorted(move for group, where in groups for move in _moves(sums, group, where))
    frees = [[move for move in moves if move.n_bytes[device] < 0] for device in range(sums.n_cards + 1)]
    room = [left[0] + sums.copied(one), *left[1:]]
    found: list[tuple[float, tuple[_Move, ...]]] = []
    for first in moves:
        if first.seconds >= 0:
            break
        rest = list(map(sub, left, first.n_bytes))
        if min(rest) >= 0:
            if first.seconds <= -gain:
                found.append((first.seconds, (first,)))
            continue
        short = min(range(len(rest)), key=rest.__getitem__)
        for second in frees[short]:
            both = first.seconds + second.seconds
            if both > -gain:
                break
            if _fits(room, first, second) and _are_two(groups, first, second):
                found.append((both, (first, second)))
    found.sort(key=lambda each: each[0])
    changed = (_changed(one, groups, moves) for _, moves in found)
    return list(islice((other for other in changed if _fit(sums, one, other, left)), _SHOWN))


def _groups(sums: Sums, one: Arrangement) -> _Groups:
    found: _Groups = {}
    for group, indices in sums.groups(one.starts).items():
        for i in indices:
            found.setdefault((group, one.wheres[i]), []).append(i)
    return found


def _moves(sums: Sums, group: Group, source: Where) -> list[_Move]:
    before = sums.way(group, source)
    return [
        _Move(way.seconds - before.seconds, tuple(map(sub, way.n_bytes, before.n_bytes)), group, source, way.where)
        for way in sums.ways(group, sums.copies()[-1])
        if way.where != source
    ]


def _fits(room: Sequence[int], first: _Move, second: _Move) -> bool:
    return all(n >= a + b for n, a, b in zip(room, first.n_bytes, second.n_bytes, strict=True))


def _fit(sums: Sums, one: Arrangement, other: Arrangement, left: Sequence[int]) -> bool:
    more = list(map(sub, sums.n_bytes(other), sums.n_bytes(one)))
    more[0] += sums.copied(other) - sums.copied(one)
    return all(n >= m for n, m in zip(left, more, strict=True))


def _are_two(groups: _Groups, first: _Move, second: _Move) -> bool:
    """Whether the moves are of two blocks."""
    same = (first.group, first.source) == (second.group, second.source)
    return not same or len(groups[first.group, first.source]) > 1


def _changed(one: Arrangement, groups: _Groups, moves: Sequence[_Move]) -> Arrangement:
    wheres, taken = list(one.wheres), set[int]()
    for move in moves:
        index = next(i for i in groups[move.group, move.source] if i not in taken)
        taken.add(index)
        wheres[index] = move.target
    return Arrangement(one.starts, tuple(wheres))
