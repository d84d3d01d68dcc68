"""Units: bytes inside the engine, MiB and GiB (powers of two) at the edge."""

from __future__ import annotations

import re

MIB = 1 << 20
GIB = 1 << 30
_MANY = 1.5  # times as long: from here on they are counted, below a share says more


def mib(n_bytes: float) -> float:
    """Return `n_bytes` in MiB, rounded to the 0.01 MiB that the engines print."""
    return round(n_bytes / MIB, 2)


def gib(n_bytes: float) -> float:
    """Return `n_bytes` in GiB, rounded to 0.01."""
    return round(n_bytes / GIB, 2)


def pad(n: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `n`."""
    return -(-n // multiple) * multiple


def in_digits(text: str) -> str:
    """Return a number of tokens in digits (`16384` for `16k`, `32,768` and `32_768` without the comma), or the text."""
    number = re.fullmatch(r"(\d{1,12}|\d{1,3}(?:[,_]\d{3}){1,3})\s?(k?)", text.strip(), re.I)
    return str(int(re.sub(r"\D", "", number[1])) * (1024 if number[2] else 1)) if number else text


def longer(times: float) -> str:
    """Return in words how long something takes that takes so many times as long as another: `4 % longer`."""
    if times >= _MANY:
        return f"{times:.1f} times as long"
    change = round(100 * (times - 1))
    return "as long" if not change else f"{abs(change)} % {'longer' if change > 0 else 'less time'}"
