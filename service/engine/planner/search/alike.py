"""How two candidates compare: what they differ in, and which of equals is the plainer."""

from __future__ import annotations

from service.engine.planner.pricing.candidate import Candidate


def same_but_batch(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate differs from another by a larger micro-batch alone."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch > other.flags.n_ubatch


def same_try(candidate: Candidate, other: Candidate) -> bool:
    """Return whether two candidates differ by nothing but what was found out of them."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch == other.flags.n_ubatch


def needs_no_less(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate differs from another by the order of its cards, and a larger micro-batch, alone."""
    alike = candidate.strategy == other.strategy and kind(candidate) == kind(other)
    return alike and set(candidate.cards) == set(other.cards) and candidate.flags.n_ubatch >= other.flags.n_ubatch


def smaller_batch(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate shares every layer on as many cards as one that was tried, in smaller batches."""
    flags, other = candidate.flags, tried.flags
    alike = flags.split_mode == other.split_mode and len(candidate.cards) == len(tried.cards)
    return alike and flags.n_ubatch < other.n_ubatch


def more_cards(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate shares every layer as one that was tried, among more cards."""
    return candidate.flags.split_mode == tried.flags.split_mode and len(candidate.cards) > len(tried.cards)


def is_neighbour(one: Candidate, other: Candidate) -> bool:
    """Return whether two candidates differ in one respect: micro-batch, one card or the order of all, cache, split."""
    a, b = one.flags, other.flags
    differs = (
        a.n_ubatch != b.n_ubatch,
        one.cards != other.cards,
        (a.cache_type_k, a.cache_type_v) != (b.cache_type_k, b.cache_type_v),
        a.split_mode != b.split_mode,
    )
    return sum(differs) == 1 and len(set(one.cards) ^ set(other.cards)) <= 1


def is_grown(one: Candidate, best: Candidate) -> bool:
    """Return whether a candidate has more cards than the best one, which leaves weights in RAM."""
    return best.strategy != "all on GPU" and set(one.cards) > set(best.cards)


def kind(candidate: Candidate) -> tuple[object, ...]:
    """Return the sort of a candidate, of which one placement is shown: cache, number of cards, split."""
    flags = candidate.flags
    return flags.cache_type_k, flags.cache_type_v, len(candidate.cards), flags.split_mode


def complexity(candidate: Candidate) -> tuple[object, ...]:
    """Of equals the plain comes first: f16, few cards, in the runtime's own order, a small micro-batch."""
    flags = candidate.flags
    in_order = candidate.cards == tuple(sorted(candidate.cards))
    return flags.cache_type_k != "f16", len(candidate.cards), not in_order, flags.n_ubatch
