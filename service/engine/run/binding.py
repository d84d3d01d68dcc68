"""Which sockets' memory and cores a command uses: what numactl and `--numa` say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.hardware import Rig

Binding: TypeAlias = Literal["unset", "interleave", "distribute", "isolate", "bound"]
_BOUND = re.compile(r"(?:^|\s)(?:-N|--cpunodebind|-m|--membind|-p|--preferred)[ =]?\d+(?:\s|$)")
BIND = ("numactl", "-N", "0", "-m", "0")
INTERLEAVE = ("numactl", "--interleave=all")


def prefix_of(numa: str | None) -> tuple[str, ...]:
    """Return the words before a command with this `--numa`: numactl's, which bind memory as well as threads."""
    return {"distribute": INTERLEAVE, "numactl": BIND}.get(numa or "", ())


def binding_of(prefix: Sequence[str], numa: str | None) -> Binding:
    """Return the binding that results from the words before a program and its `--numa`."""
    words = " ".join(prefix)
    if "numactl" in words:
        if re.search(r"(?:-i|--interleave)\b", words):
            return "interleave"
        if _BOUND.search(words):
            return "bound"
    return "distribute" if numa == "distribute" else "isolate" if numa == "isolate" else "unset"


def one_socket(rig: Rig) -> Rig:
    """Return the share of a machine that is left to a command bound to one of its sockets."""
    n = rig.sockets
    return msgspec.structs.replace(
        rig, sockets=1, physical_cores=max(rig.physical_cores // n, 1), cpu_bandwidth_gbs=rig.cpu_bandwidth_gbs / n
    )
