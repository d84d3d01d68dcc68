"""Cards that are sold for servers only, and the CPU beside them where none is named.

The CPUs are those of NVIDIA's DGX A100 (EPYC 7742, Rome), DGX H100 and H200 (Xeon 8480C, Sapphire Rapids), DGX B200
(Xeon 8570, Emerald Rapids) and GH200 (Grace), and those that clouds pair the cards with: AWS's g5 (A10G: EPYC Rome), g6
and g6e (L4, L40S: EPYC Milan), Azure's ND A100 v4 (EPYC 7V12, Rome), ND H100 v5 and ND MI300X v5 (Xeon Sapphire
Rapids); the MI250 came with EPYC Milan. Clouds have others, too: AWS's p5 an EPYC Milan beside its H100. Cards that are
put into desktops as well, used or new, are not here: P40, P100, T4, V100, MI50 to MI100, RTX PRO 6000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.families import family_of
from service.engine.catalogue.rows import CpuRow

_CPU_BESIDE = (
    (re.compile(r"NVIDIA A(?:10G?|16|30|40|[18]00)\b"), "EPYC Rome"),
    (re.compile(r"NVIDIA L(?:4|20|40S?)\b"), "EPYC Milan"),
    (re.compile(r"NVIDIA H(?:20|[128]00)\b"), "Xeon Sapphire Rapids"),
    (re.compile(r"NVIDIA B[23]00\b"), "Xeon Emerald Rapids"),
    (re.compile(r"NVIDIA G[BH]200\b"), "NVIDIA Grace"),
    (re.compile(r"Instinct MI2[15]0X?\b"), "EPYC Milan"),
    (re.compile(r"Instinct MI3[025][05]X\b"), "Xeon Sapphire Rapids"),
)


def cpu_beside(cards: Sequence[str]) -> CpuRow | None:
    """Return the CPU of servers with such cards, without a name; None if any of them may be in a desktop.

    `cards` are the catalogue's names. Of several kinds, the first decides.
    """
    found = [next((cpu for pattern, cpu in _CPU_BESIDE if pattern.search(name)), None) for name in cards]
    if not found or None in found:
        return None
    row = family_of(found[0] or "")
    return None if row is None else msgspec.structs.replace(row, name="")
