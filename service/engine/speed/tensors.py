"""The class of a tensor's type, as calibration names it."""

from __future__ import annotations

from functools import cache


@cache
def quant_class(name: str) -> str:
    """Return the class of a tensor type as calibration names it: k | iqk | iq | iq1 | kt | f."""
    base = name.lower().split("_r")[0]
    if base in ("f32", "f16", "bf16"):
        return "f"
    if base.endswith("_kt"):
        return "kt"
    if base.startswith("iq") and ("_k" in base):
        return "iqk"
    if base.startswith("iq1"):
        return "iq1"
    return "iq" if base.startswith(("iq2", "iq3")) else "k"
