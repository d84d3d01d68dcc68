"""How two candidates compare: what they have in common, and which of equally good ones is the plainer."""

from __future__ import annotations

from service.engine.planner.pricing.candidate import Candidate


def larger_batch(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has a larger micro-batch than another, and the same cards, cache and split mode."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch > other.flags.n_ubatch


def same_setup(candidate: Candidate, other: Candidate) -> bool:
    """Return whether two candidates have the same cards in the same order, cache, split mode and micro-batch: they may
    differ in what lies in RAM."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch == other.flags.n_ubatch


def needs_no_less(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate needs at least the memory of another: it has the same cards, perhaps in another order,
    the same strategy, cache and split mode, and a micro-batch as large or larger."""
    alike = candidate.strategy == other.strategy and kind(candidate) == kind(other)
    return alike and set(candidate.cards) == set(other.cards) and candidate.flags.n_ubatch >= other.flags.n_ubatch


def smaller_batch(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate has a smaller micro-batch than one that was tried, and as many cards and the same
    split mode."""
    flags, other = candidate.flags, tried.flags
    alike = flags.split_mode == other.split_mode and len(candidate.cards) == len(tried.cards)
    return alike and flags.n_ubatch < other.n_ubatch


def fewer_cards_and_smaller_batch(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has some of the cards of another and a smaller micro-batch, and the same strategy,
    cache and split mode."""
    flags, others = candidate.flags, other.flags
    caches = (flags.cache_type_k, flags.cache_type_v) == (others.cache_type_k, others.cache_type_v)
    alike = caches and (candidate.strategy, flags.split_mode) == (other.strategy, others.split_mode)
    return alike and set(candidate.cards) < set(other.cards) and flags.n_ubatch < others.n_ubatch


def more_cards(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate has more cards than one that was tried, and the same split mode."""
    return candidate.flags.split_mode == tried.flags.split_mode and len(candidate.cards) > len(tried.cards)


def is_neighbour(one: Candidate, other: Candidate) -> bool:
    """Return whether two candidates differ in exactly one of micro-batch, cards (one card, or the order of all), cache
    types and split mode."""
    a, b = one.flags, other.flags
    differs = (
        a.n_ubatch != b.n_ubatch,
        one.cards != other.cards,
        (a.cache_type_k, a.cache_type_v) != (b.cache_type_k, b.cache_type_v),
        a.split_mode != b.split_mode,
    )
    return sum(differs) == 1 and len(set(one.cards) ^ set(other.cards)) <= 1


def adds_cards(one: Candidate, best: Candidate) -> bool:
    """Return whether a candidate has all cards of the best one and more, where the best one leaves weights in RAM."""
    return best.strategy != "all on GPU" and set(one.cards) > set(best.cards)


def kind(candidate: Candidate) -> tuple[object, ...]:
    """Return the kind of a candidate, of which one placement is enough to show: cache types, number of cards, split."""
    flags = candidate.flags
    return flags.cache_type_k, flags.cache_type_v, len(candidate.cards), flags.split_mode


def complexity(candidate: Candidate) -> tuple[object, ...]:
    """Return a sort key that puts the plainer of equally good candidates first: f16 cache, few cards, in the runtime's
    own order, a small micro-batch."""
    flags = candidate.flags
    in_order = candidate.cards == tuple(sorted(candidate.cards))
    return flags.cache_type_k != "f16", len(candidate.cards), not in_order, flags.n_ubatch
