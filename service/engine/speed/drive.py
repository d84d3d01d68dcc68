"""Mapped weights that do not fit into RAM: what is read of them from the drive, over and over.

Both engines map weights where nothing turns that off, and the system reads from the drive what it had to drop. A kept
share of the experts serves as large a share of what tokens choose. What every token reads in the same order is read
whole once it does not fit, for the system drops first what was not used for longest.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from service.engine.estimate import Estimate
from service.engine.run.resolved import ResolvedRun
from service.engine.speed.predict import Speed
from service.engine.tensor_names import is_expert

# Bytes a second that a PCIe 4.0 drive with four lanes reads in one piece (its link moves 7.9), and how many times that
# rate tokens see. Less, for pages are read as they are met; more, for some experts are met again and again and stay in
# RAM. The range is judgment: two runs of DeepSeek-R1 with 96 GB of RAM were published, 212 GB at about 2 t/s without a
# GPU (J. Leimgruber, January 2025) and 226 GiB at 4 (ik_llama.cpp discussion 286), and neither with its drive's rate.
DRIVE = 7e9
_LEAST, _MOST = 0.5, 1.5


class DriveReads(NamedTuple):
    """Bytes that RAM cannot keep (`beyond`), those of them that a token reads, and the seconds for a token and a
    batch."""

    beyond: float
    a_token: float
    token: Estimate
    batch: Estimate


def drive_reads(run: ResolvedRun, beyond: float) -> DriveReads | None:
    """Return what is read from the drive where RAM is too small by `beyond` bytes.

    None where nothing is mapped, where more than the mapped weights does not fit, and where a GPU shares the memory
    with the CPU: what that would do is not known.
    """
    if beyond <= 0 or run.mmap_off or any(run.rig.cards[d.gpu].unified for d in run.devices):
        return None
    experts, others = weights_in_ram(run)
    if beyond > experts + others:
        return None
    share = run.model.expert_share
    met = 1 - (1 - share) ** run.flags.n_ubatch
    in_order = others if beyond > experts else 0.0
    out = min(beyond, experts)
    a_token, least, most = out * share + in_order, out * met + in_order, experts * met + in_order
    return DriveReads(
        beyond,
        a_token,
        token=_seconds(a_token, a_token, a_token),
        batch=_seconds(least, (least + most) / 2, most),  # how much of a sweep over all experts finds them in RAM
    )


def from_drive(speed: Speed, reads: DriveReads) -> Speed:
    """Return the speed including the time to read from the drive. `parts_tg` and `parts_pp` are without it."""
    return replace(speed, tg=_slower(speed.tg, 1, reads.token), pp=_slower(speed.pp, speed.n_ubatch, reads.batch))


def weights_in_ram(run: ResolvedRun) -> tuple[int, int]:
    """Return the bytes in RAM of routed experts, and of all other weights."""
    there = [t for t in run.model.tensors if run.placement.tensors.get(t.name) == run.placement.n_devices]
    experts = sum(t.nbytes for t in there if is_expert(t.name))
    return experts, sum(t.nbytes for t in there) - experts


def _seconds(least: float, expected: float, most: float) -> Estimate:
    return Estimate(least / DRIVE / _MOST, expected / DRIVE, most / DRIVE / _LEAST)


def _slower(speed: Estimate, n_tokens: int, seconds: Estimate) -> Estimate:
    return Estimate(
        n_tokens / (n_tokens / speed.low + seconds.high),
        n_tokens / (n_tokens / speed.expected + seconds.expected),
        n_tokens / (n_tokens / speed.high + seconds.low),
        speed.basis,
    )
