"""Patterns for `-ot` rules: the shortest readable ones that match exactly the given layers.

No pattern contains ',' '=' or ';', at which the engines split, and none matches a layer by a part of its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EXPERT_PARTS = ("up", "gate", "down", "gate_up")


def expert_override(layers: Iterable[int], parts: Sequence[str] = EXPERT_PARTS) -> str:
    r"""Return a pattern for the routed experts' tensors (weights, biases, scales) of exactly `layers`.

    Such as `blk\.(7|3[0-9]|4[0-5])\.ffn_(up|gate|down|gate_up)_exps`. `parts`: of EXPERT_PARTS.
    """
    return rf"blk\.{number_pattern(layers)}\.ffn_{_alternatives(list(parts))}_exps"


def dense_override(layers: Iterable[int], parts: Sequence[str] = ("up", "gate", "down")) -> str:
    """Return a pattern for the dense feed-forward weights of exactly `layers` (no experts, shared or routed)."""
    return rf"blk\.{number_pattern(layers)}\.ffn_{_alternatives(list(parts))}\."


def number_pattern(numbers: Iterable[int]) -> str:
    """Return a pattern that matches exactly these whole numbers below 10,000, each written out in full.

    Raises ValueError when there are none, or one is out of range.
    """
    wanted = sorted(set(numbers))
    if not wanted or wanted[0] < 0 or wanted[-1] >= 10_000:
        raise ValueError("layer numbers from 0 to 9,999 are needed")
    return _alternatives(_pieces(wanted))


def _pieces(numbers: list[int]) -> list[str]:
    """Return classes for ascending numbers: `4[0-5]` where the leading digits agree, `[2-5][0-9]` where the last do."""
    tens: dict[str, list[int]] = {}
    for number in numbers:
        tens.setdefault(str(number)[:-1], []).append(number % 10)
    heads_by_tail: dict[tuple[int, str], list[str]] = {}
    for head, digits in tens.items():
        heads_by_tail.setdefault((len(head), _digits(digits)), []).append(head)
    pieces: list[tuple[int, str]] = []
    for (_, tail), heads in heads_by_tail.items():
        first = int(heads[0] + str(tens[heads[0]][0]))
        leading = heads if len(heads) == 1 else _pieces([int(head) for head in heads])
        pieces += [(first, head + tail) for head in leading]
    return [piece for _, piece in sorted(pieces, key=lambda item: item[0])]


def _digits(digits: list[int]) -> str:
    """Return a class for one digit: `7`, `[35]`, `[0-4]`, `[0-24-6]`."""
    if len(digits) == 1:
        return str(digits[0])
    runs: list[list[int]] = []
    for digit in digits:
        if runs and runs[-1][-1] == digit - 1:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    return "[" + "".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(map(str, run)) for run in runs) + "]"


def _alternatives(pieces: list[str]) -> str:
    return pieces[0] if len(pieces) == 1 else f"({'|'.join(pieces)})"
