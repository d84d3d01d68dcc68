"""Which cards a config may use, and which of them comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from service.engine.hardware import Card, Rig

Cards = tuple[int, ...]  # indices into the rig's cards, in the engine's order
_MOST_SETS = 40


def card_sets(rig: Rig) -> list[Cards]:
    """Return the sets of cards worth trying, fastest first, the larger sets first.

    Cards of one kind are exchangeable, so a set is how many of each kind it has. Of rigs with many kinds, only whole
    kinds are left out. With Vulkan all are used: the driver's order, by which some could be hidden, is not known.
    """
    if any(card.backend == "vulkan" for card in rig.cards):
        return [tuple(range(len(rig.cards)))]
    kinds = _kinds(rig.cards)
    counts = [range(len(kind) + 1) for kind in kinds]
    if _size(counts) > _MOST_SETS:
        counts = [range(0, len(kind) + 1, len(kind)) for kind in kinds]
    sets = [
        tuple(sorted(i for kind, n in zip(kinds, chosen, strict=True) for i in kind[:n])) for chosen in product(*counts)
    ]
    prefixes = [tuple(range(n)) for n in range(1, len(rig.cards) + 1)]
    found = dict.fromkeys((*prefixes, *sorted(sets, key=len)[: -_MOST_SETS - 1 : -1]))
    return sorted((cards for cards in found if cards), key=lambda cards: (-len(cards), cards))


def orders(rig: Rig, cards: Cards) -> Iterator[Cards]:
    """Yield the orders worth trying with weights in RAM: fastest first, then the widest link, the most memory first.

    The first card takes the weights that are copied from RAM for a batch, over its link and into its compute buffer
    (ggml-backend.cpp of both engines: the backend of highest priority that supports the operation).
    """
    if any(rig.cards[i].backend == "vulkan" for i in cards):
        yield cards
        return
    seen = set()
    by_link = max(cards, key=lambda i: (rig.cards[i].pcie_gbs, -i))
    by_memory = max(cards, key=lambda i: (rig.cards[i].free, -i))
    for leader in (cards[0], by_link, by_memory):
        kind = _kind(rig.cards[leader])
        if kind not in seen:
            seen.add(kind)
            yield (leader, *(i for i in cards if i != leader))


def _size(counts: Sequence[range]) -> int:
    total = 1
    for choices in counts:
        total *= len(choices)
    return total


def _kinds(cards: Sequence[Card]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, card in enumerate(cards):
        found.setdefault(_kind(card), []).append(i)
    return list(found.values())


def _kind(card: Card) -> object:
    return card.name, card.free, card.pcie_gbs, card.bandwidth_gbs


def even_shares(rooms: Sequence[float], speeds: Sequence[float], total: float) -> list[float]:
    """Return what each card takes of `total` where all are to be done at the same time, and none takes beyond its room.

    Less than `total` in sum where the rooms are too small.
    """
    taken, open_cards = [0.0] * len(rooms), set(range(len(rooms)))
    left = total
    while open_cards and left > 1:
        speed = sum(speeds[i] for i in open_cards)
        full = {i for i in open_cards if rooms[i] <= left * speeds[i] / speed}
        for i in full or open_cards:
            taken[i] = rooms[i] if full else left * speeds[i] / speed
        left = total - sum(taken)
        open_cards -= full or open_cards
    return taken
