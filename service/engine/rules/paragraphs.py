"""The headings of docs/offloading.md that rules of several files refer to."""

from __future__ import annotations

BUILDING = "building-the-engine"
CACHE = "the-cache"
CARDS = "unlike-cards"
LINK = "the-micro-batch-and-the-link"
MMAP = "mmap-pinned-memory-and-ram-that-is-too-small"
OVERRIDES = "rules-of--ot"
READ = "what-a-token-reads"
SPLIT_MODES = "layers-or-together--sm"
UNASKED = "what-the-engines-do-unasked"
