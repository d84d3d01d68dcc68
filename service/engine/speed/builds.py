"""How older builds behaved: what changed speed, in which engine, from which day on.

Days are those on which a pull request was merged, or, where none is known, between which published runs change
("inferred"). A build of no known date is today's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine

Change: TypeAlias = Literal[
    "flash_attention",
    "copies_of_fused_experts",
    "interleaved_on_gpu",
    "expert_threshold",
    "repack_on_the_fly",
    "interleaved_batches",
    "zen5_batches",
    "moe_graphs",
    "odd_head_ratios",
    "batch_attention",
    "sliding_windows",
    "expert_batches",
    "active_experts_only",
    "pinned",
    "latent_by_default",
    "cpu_repack",
]


class Milestone(msgspec.Struct, frozen=True):
    """`change` is in builds of `engine` from `date` (YYYY-MM-DD) on. `source`: a pull request, or why that day."""

    change: Change
    engine: Engine
    date: str
    source: str


MILESTONES: tuple[Milestone, ...] = (
    Milestone("flash_attention", "ik_llama.cpp", "2025-05-05", "pull request 370: heads of a group share the cache"),
    Milestone("copies_of_fused_experts", "ik_llama.cpp", "2025-05-13", "pull request 405"),
    Milestone("interleaved_on_gpu", "ik_llama.cpp", "2025-05-26", "inferred: published runs of *_r4 types"),
    Milestone("expert_threshold", "ik_llama.cpp", "2025-06-12", "pull request 520"),
    Milestone("repack_on_the_fly", "ik_llama.cpp", "2025-06-16", "pull requests 525 to 534"),
    Milestone("interleaved_batches", "ik_llama.cpp", "2025-06-26", "pull request 559"),
    Milestone("zen5_batches", "ik_llama.cpp", "2025-07-20", "pull request 612, inferred"),
    Milestone("moe_graphs", "ik_llama.cpp", "2025-08-10", "pull request 689"),
    Milestone("moe_graphs", "llama.cpp", "2025-08-10", "inferred from published runs"),
    Milestone("odd_head_ratios", "ik_llama.cpp", "2025-08-17", "pull request 700"),
    Milestone("batch_attention", "ik_llama.cpp", "2025-08-20", "inferred from published runs"),
    Milestone("sliding_windows", "ik_llama.cpp", "2025-08-25", "inferred from published runs"),
    Milestone("expert_batches", "ik_llama.cpp", "2025-08-26", "inferred: one kernel for all experts of a layer"),
    Milestone("active_experts_only", "ik_llama.cpp", "2025-10-20", "pull request 698; the default since"),
    Milestone("pinned", "ik_llama.cpp", "2025-11-01", "inferred: buffers of overridden tensors"),
    Milestone("latent_by_default", "ik_llama.cpp", "2025-11-12", "-mla is 3 by default; before, 0"),
    Milestone("flash_attention", "llama.cpp", "2025-05-15", "inferred from published runs"),
    Milestone("sliding_windows", "llama.cpp", "2025-05-21", "pull request 13194"),
    Milestone("active_experts_only", "llama.cpp", "2025-09-01", "pull request 15346"),
    Milestone("cpu_repack", "llama.cpp", "2025-10-01", "inferred from published runs"),
)


@lru_cache(maxsize=256)
def changes_after(engine: Engine, build_date: str | None) -> frozenset[Change]:
    """Return the changes that a build of `build_date` (YYYY-MM-DD) does not have yet; none without a date."""
    if build_date is None:
        return frozenset()
    return frozenset(m.change for m in MILESTONES if m.engine == engine and build_date < m.date)
