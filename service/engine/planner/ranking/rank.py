"""Which config comes first: the one of the least cost in time and quality, then the rest by the goal's time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from service.engine.advice import Pick, Weighed
from service.engine.builds import Build
from service.engine.commands.building import packages
from service.engine.config import Engine, Flags
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.hardware import Card, Rig
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.pricing.fit import Fitted, Problem
from service.engine.planner.pricing.support import untested_cards
from service.engine.planner.ranking.utility import Figures, cost, unnoticed
from service.engine.speed.predict import Speed, speed_point

T = TypeVar("T")
MAX_CONFIGS = 8
_MIN_CONFIGS = 3  # fewer lines leave nothing to compare
_MAX_PER_VARIANT_AND_ENGINE = 2
_Q8_BPW = 8.5  # bits beyond Q8_0 are not counted: no one has shown them to matter
_WORTH_SHOWING = 0.99  # of the time: what a less plain config (more cards, say) may take to be shown as well
_NO_ALTERNATIVE = 1.5  # times as slow: another strategy is then no alternative
_OUTCLASSED = 0.9  # of the time: what the same on other cards takes at most, to replace a config
_AS_CHEAP = 0.02  # of cost: how much more a config with a quantised cache may cost and still be shown
SPARE = 0.2  # of the memory of all cards: from so much idle memory on, using it for quality may cost more
_BUFFERS = 0.1  # of that memory: what compute buffers take, whose size depends on the micro-batch
SPARE_WORTH = 0.06  # of cost, some 6 % of the time: how much more, for each SPARE that would be idle
MUCH_FASTER = 1.15  # times as fast as the first: what the pick `fast` has to be
LESS_LOSS = 0.2  # per cent of perplexity: by how much less the pick `quality` has to lose
DAMAGED = 30.0  # per cent of perplexity: a variant that loses more is listed only where there is room
COSTS_LITTLE = 0.15  # of cost, some 15 % of the time: how much more than the first the pick `simple` may cost,
FEWER_WORDS = 0.6  # with so many of its words at most
_TOO_SLOW = 8.0  # times the fastest: then even a popular variant is not listed
_WORD = re.compile(r"\w+")
# What the makers' cards recommend and most downloads are of (bartowski's and unsloth's cards, ubergarm's tables).
POPULAR = re.compile(r"(?:^|[-_.])(?:IQ4_XS|Q4_K_M|Q4_K_XL|Q5_K_M|Q6_K|Q8_0|IQ4_KSS|IQ5_K|mxfp4)$", re.I)
NEGLIGIBLE = 1.02  # of the goal's time: what a larger micro-batch may cost at most,
_OF_LONGER_PROMPTS = 0.1  # and of what it gains at longer prompts


class Squeeze(NamedTuple):
    """A longer command for nearly the same placement: its flags, and how many times as fast it is."""

    flags: Flags
    gain: float


class Contender(msgspec.Struct, frozen=True, dict=True):
    """A candidate that was placed and fits, with its speed at the goal's depth and the seconds of the goal's request.

    `loss`: by how many per cent quantisation is expected to raise perplexity (`ranking_loss`). `typical`: the seconds
    of a request with a usual prompt, which its cost counts. `name`: the variant's. `in_use`: the engine of the
    command in use. `squeeze`: a longer command that is not enough faster to be worth its words.
    """

    engine: Engine
    variant: int
    bpw: float
    loss: float
    candidate: Candidate
    problem: Problem
    fitted: Fitted
    speed: Speed
    seconds: Estimate
    typical: float
    name: str = ""
    in_use: Engine | None = None
    squeeze: Squeeze | None = None

    @property
    def n_words(self) -> int:
        """The number of words in its command that place tensors, each word inside a pattern counted."""
        return self.n_words_with(self.fitted.flags)

    def n_words_with(self, flags: Flags) -> int:
        """As `n_words`, with these flags in the command instead."""
        patterns = sum(len(_WORD.findall(rule.pattern)) + 2 for rule in flags.overrides)
        switches = (flags.n_cpu_moe, flags.cpu_moe, flags.split_mode != "layer", flags.numa)
        cards = len(self.problem.rig.cards) > len(self.candidate.cards)
        by_fit = flags.layers_in_ram > 0  # the word `--fit`
        return patterns + by_fit + len(flags.written_split) + 2 * sum(map(bool, switches)) + 2 * cards

    @property
    def raises_limit(self) -> bool:
        """Whether it needs more of a shared memory than the system lets the GPU have without being told."""
        pairs = zip(self.problem.devices, self.fitted.memory.devices, strict=False)
        cards = ((self.problem.rig.cards[device.gpu], i) for i, (device, _) in enumerate(pairs))
        return any(
            card.raised_by and self.fitted.memory.total(i).high + card.reserve > (card.usual_limit or 0)
            for card, i in cards
        )

    @cached_property
    def weighed(self) -> Weighed:
        """What its cost counts besides speed and loss, as an answer states it."""
        memory, limits = self.fitted.memory, self.problem.limits
        cards = [self.problem.rig.cards[card] for card in self.candidate.cards]
        totals = [memory.total(i).expected for i in range(len(memory.devices))]
        return Weighed(
            usual=round(self.typical / max(self.seconds.expected, 1e-9), 4),
            ram_used=round(sum(totals if limits.shared else totals[-1:]) / max(limits.host, 1), 4),
            raises_limit=self.raises_limit,
            to_build=has_to_be_built(self.engine, cards, self.problem.rig, self.problem.build, self.in_use),
            windows=self.problem.rig.windows,
            cards_left=round(self.cards_left(), 4),
            is_mixture=bool(self.problem.model.moe_layers),
            shared=limits.shared,
            untested=bool(untested_cards(self.engine, cards)),
            other_engine=self.in_use not in (None, self.engine),
        )

    def cost(self, goal: Goal, pick: Pick | None = None) -> float:
        """Return its `utility.cost`, as a pick or (None) for the goal: the least is the best."""
        return cost(self._figures, goal, pick)

    def choice(self, goal: Goal, memory: float = 1.0) -> Choice:
        """Return what decides whether it comes first. `memory`: a factor on the memory of all cards."""
        loss = deciding_loss(self.loss, goal, shared=self.problem.limits.shared)
        return Choice(self.cost(goal), loss, self.cards_left(memory), reaches(self.speed, goal))

    def cards_left(self, memory: float = 1.0) -> float:
        """Return the share of all cards' memory (times `memory`) that it leaves free; 0 with weights in RAM.

        Buffers count as `_BUFFERS`, because the micro-batch is chosen by what is free. At most a fifth where GPU and
        CPU share the memory: what a model leaves there does not lie idle.
        """
        if self.candidate.strategy != "all on GPU":
            return 0.0
        used = sum(one.weights + one.kv for one in self.fitted.memory.devices[:-1])
        left = 1 - _BUFFERS - used / max(sum(card.free for card in self.problem.rig.cards) * memory, 1)
        return min(left, SPARE) if self.problem.limits.shared else max(0.0, left)

    @cached_property
    def _figures(self) -> Figures:
        tg, pp = self.speed.tg.expected, self.speed.pp.expected
        given = Given(self.typical, tg, pp, self.loss)
        return figures_of(self.fitted.flags, self.candidate.strategy, len(self.candidate.cards), self.weighed, given)


def has_to_be_built(
    engine: Engine, cards: Sequence[Card], rig: Rig, build: Build | None, in_use: Engine | None
) -> bool:  # fmt: skip
    """Return whether the asker has to build an engine: nobody packages it for these cards and the rig's system.

    A command in use (`build` None), its engine, and a build that was stated by its date, are there already.
    """
    if build is None or build.date is not None or in_use == engine:
        return False
    shell = "powershell" if rig.windows else "posix"
    return all(one.shell != shell for one in packages(engine, cards))


class Given(NamedTuple):
    """What a config achieves, as predicted or measured: seconds of usual requests, TG and PP at the goal's depth, and
    per cent of perplexity lost."""

    seconds: float
    tg: float
    pp: float
    loss: float


def figures_of(
    flags: Flags, strategy: str, n_cards: int, weighed: Weighed, given: Given, *, known: bool = False
) -> Figures:
    """Return the figures that the cost of a config is made of, whether it is forecast, placed or advised.

    `known`: its speeds were measured, so `together_factor` does not apply.
    """
    factor = 1.0 if known else together_factor(flags, is_mixture=weighed.is_mixture)
    return Figures(
        seconds=given.seconds * factor,
        tg=given.tg / factor,
        pp=given.pp / factor,
        loss=given.loss,
        on_gpu=strategy == "all on GPU",
        n_cards=n_cards,
        ram_used=weighed.ram_used,
        raises_limit=weighed.raises_limit,
        together=factor > 1,
        cache=(flags.cache_type_k, flags.cache_type_v),
        to_build=weighed.to_build,
        windows=weighed.windows,
        untested=weighed.untested,
        other_engine=weighed.other_engine,
        dense=not weighed.is_mixture,
    )


class Choice(NamedTuple):
    """What decides which of several comes first: its cost, its loss in per cent (`deciding_loss`), the share of all
    cards' memory that it leaves free (0 with weights in RAM), and whether it reaches the goal's minima."""

    cost: float
    loss: float
    left: float
    reaches: bool


def reaches(speed: Speed, goal: Goal) -> bool:
    """Return whether the expected speeds, as they are shown, reach the goal's minima; `speed` is that at its depth."""
    shown = speed_point(0, speed)  # 7.947 is given as 7.95 and printed as 8.0
    return reaches_minimum(shown.tg_tps, goal.min_tg) and reaches_minimum(shown.pp_tps, goal.min_pp)


def reaches_minimum(tps: float, least: float | None) -> bool:
    """Return whether a speed, as it is printed, reaches a minimum of the goal (None: there is none)."""
    return round(tps, 1) >= (least or 0)


def beginning(word: str, loss: Sequence[float] | None) -> str:
    """Return how a headline begins: `word`, unless quantisation damaged the variant. `loss`: its `loss_percent`."""
    if loss is None or loss[1] <= DAMAGED:
        return word
    return f"{'It fits, but' if word == 'Yes' else f'{word}, and'} quantisation has damaged this variant"


class Ranked(NamedTuple):
    """Contenders in the order shown, and the picks among them."""

    order: list[Contender]
    picks: dict[Pick, Contender]


def rank(contenders: list[Contender], goal: Goal) -> Ranked:
    """Return at most eight contenders in order, at most two of one variant and engine.

    First comes the one of the least cost (`utility.cost`), or one of better quality for the idle memory of cards
    (`first_by`). Then the other picks; then, by the goal's time, the first one's variant on the other engine, and split
    by layer where the first one is not; the cheapest that lies whole on the cards, where the first one does not; and
    one of each variant that is popular or that nothing beats in both quality and time. Where these are fewer than
    three, the fastest others follow.
    """
    groups = _by_batch(contenders, goal)
    largest = {id(group[0]): _largest_batch(group, goal) for group in groups}
    by_time = _distinct([group[0] for group in groups], goal)
    if not by_time:
        return Ranked([], {})
    first = by_time[first_by([c.choice(goal) for c in by_time], goal)]
    picked = picks(by_time, goal, first)
    named = _unique(picked.values())
    others = [c for c in by_time if all(c is not k for k in named)]
    alike = [c for c in others if c.variant == first.variant]
    twin = [c for c in alike if c.engine != first.engine][:1]
    if not first.candidate.splits_by_layer:
        twin += [c for c in alike if c.candidate.splits_by_layer][:1]
    if first.candidate.strategy != "all on GPU":
        on_cards = [c for c in others if c.candidate.strategy == "all on GPU" and c.loss <= DAMAGED]
        twin += sorted(on_cards, key=lambda c: c.cost(goal))[:1]
    others.sort(key=lambda c: c.loss > DAMAGED)
    wanted = [*named, *twin, *_one_a_variant(first, by_time, goal)]
    chosen = _limited(_unique(wanted))
    if len(chosen) < _MIN_CONFIGS:
        chosen = _limited(_unique([*chosen, *others]))[:_MIN_CONFIGS]
    rest = [c for c in chosen if all(c is not k for k in named)]
    order = [*named, *sorted(rest, key=lambda c: c.seconds.expected)]
    return Ranked([largest[id(c)] for c in order], {name: largest[id(c)] for name, c in picked.items()})


def _unique(contenders: Iterable[Contender]) -> list[Contender]:
    return list({id(c): c for c in contenders}.values())


def picks(by_time: Sequence[Contender], goal: Goal, first: Contender | None = None) -> dict[Pick, Contender]:
    """Return the picks: `balanced`, which is the first config, and each other that differs enough from it, the cheapest
    as such a pick.

    `first`: that config, where it is known.
    """
    first = first or first_of(by_time, goal)
    found: dict[Pick, Contender] = {"balanced": first}
    better = [c for c in by_time if c.loss < first.loss - LESS_LOSS and _usable(c, goal, first)]
    faster = [c for c in by_time if c.seconds.expected * MUCH_FASTER < first.seconds.expected]
    others: tuple[tuple[Pick, list[Contender]], ...] = (("quality", better), ("fast", faster))
    for pick, differing in others:
        best = min([first, *differing], key=lambda c: c.cost(goal, pick))
        if best is not first:
            found[pick] = best
    limit = first.cost(goal) + COSTS_LITTLE
    plain = min((c for c in by_time if c.cost(goal) <= limit), key=lambda c: (c.n_words, c.cost(goal)))
    if plain.n_words < first.n_words and plain.n_words <= first.n_words * FEWER_WORDS:
        found["simple"] = plain
    return found


def _usable(contender: Contender, goal: Goal, first: Contender) -> bool:
    """Whether it reaches the goal's minima by half: quality is worth waiting for, within reason.

    Where the first config does not reach them either, by half of what that one reaches.
    """
    speed, best = contender.speed, first.speed
    tg, pp = min(goal.min_tg or 0, best.tg.expected), min(goal.min_pp or 0, best.pp.expected)
    return speed.tg.expected >= tg / 2 and speed.pp.expected >= pp / 2


def _one_a_variant(first: Contender, by_time: Sequence[Contender], goal: Goal) -> list[Contender]:
    """The cheapest of each variant that is worth a line (`lines`), without the first config."""
    best: dict[int, Contender] = {}
    for c in sorted(by_time, key=lambda c: c.cost(goal)):
        best.setdefault(c.variant, c)
    shown = lines(list(best.values()), lambda c: Line(c.name, c.loss, c.seconds.expected, c.cost(goal)))
    return [c for c in shown if c is not first]


class Line(NamedTuple):
    """What decides whether a variant is worth a line in the list: its name, loss in per cent, seconds and cost."""

    name: str
    loss: float
    seconds: float
    cost: float


def lines(found: Sequence[T], measure: Callable[[T], Line]) -> list[T]:
    """Return what is worth a line: popular variants, then those that none beats in both quality and time; by cost."""
    measured = [(measure(one), one) for one in found]
    quickest = min((line.seconds for line, _ in measured), default=0.0)
    kept = []
    for line, one in measured:
        if line.loss > DAMAGED:
            continue
        beaten = any(k.loss <= line.loss and k.seconds < line.seconds for k, _ in measured)
        popular = POPULAR.search(line.name) is not None and line.seconds < quickest * _TOO_SLOW
        if popular or not beaten:
            kept.append((not popular, line.cost, one))
    return [one for *_, one in sorted(kept, key=lambda row: row[:2])]


def together_factor(flags: Flags, *, is_mixture: bool) -> float:
    """Return the factor by which predicted times are raised where all cards share every layer: what may be too much.

    Gains over `-sm layer` were predicted up to 1.13 times too high for dense models, 1.26 for mixtures (docs/speed.md,
    effects of flags). With latent attention they were far off, and it is never first before it was measured.
    """
    if flags.split_mode == "layer":
        return 1.0
    if flags.mla is not None:
        return 10.0
    return 1.3 if is_mixture else 1.15


def counted_bits(bpw: float) -> float:
    """Return the bits per weight that count for quality: up to Q8_0."""
    return min(bpw, _Q8_BPW)


def first_of(contenders: Sequence[Contender], goal: Goal) -> Contender:
    """Return the contender that comes first, the faster one of equals."""
    by_time = sorted(contenders, key=lambda c: c.seconds.expected)
    return by_time[first_by([c.choice(goal) for c in by_time], goal)]


def first_by(choices: Sequence[Choice], goal: Goal) -> int:
    """Return the index of what comes first: the cheapest, or the one of least loss that costs hardly more.

    That is one that fits the cards with memory to spare, of which the cheapest would leave more idle. For the goal
    `fastest` the cheapest comes first.
    """
    best = min(range(len(choices)), key=lambda i: choices[i].cost)
    limit = choices[best].cost + (spare_worth(choices[best].left) if goal.preset != "fastest" else 0.0)
    spending = [i for i, one in enumerate(choices) if one.left >= SPARE and one.reaches and one.cost < limit]
    return min({best, *spending}, key=lambda i: (choices[i].loss, choices[i].cost, i))


def deciding_loss(loss: float, goal: Goal, *, shared: bool) -> float:
    """Return the loss for which memory may be spent that a config would leave free.

    Where GPU and CPU share the memory, other programs use what is left: it is not spent on a loss that nobody notices.
    """
    return max(loss, unnoticed(goal)) if shared else loss


def spare_worth(left: float) -> float:
    """Return how much more than the cheapest, which leaves this share of the cards' memory free, a config may cost that
    spends some of it on quality: the more would lie idle, a whole card perhaps, the more."""
    return SPARE_WORTH * max(1.0, left / SPARE)


def _by_batch(contenders: Sequence[Contender], goal: Goal) -> list[list[Contender]]:
    """Groups of contenders that differ in their micro-batch, the cheapest of each group first."""
    alike: dict[object, list[Contender]] = {}
    for c in sorted(contenders, key=lambda c: c.cost(goal)):
        flags = c.fitted.flags
        kind = (c.engine, c.variant, c.candidate.cards, flags.cache_type_k, flags.cache_type_v, flags.split_mode)
        alike.setdefault(kind, []).append(c)
    return list(alike.values())


def _largest_batch(group: Sequence[Contender], goal: Goal) -> Contender:
    """Of a group of `_by_batch`: the fastest at long prompts that costs hardly more than the cheapest."""
    best = group[0]
    limit, seconds = math.log(NEGLIGIBLE), best.seconds.expected * NEGLIGIBLE

    def is_near(c: Contender) -> bool:
        gain = math.log(c.speed.pp.expected / best.speed.pp.expected)
        costs_little = c.cost(goal) - best.cost(goal) <= min(limit, _OF_LONGER_PROMPTS * gain)
        return c.candidate.strategy == best.candidate.strategy and costs_little and c.seconds.expected <= seconds

    return max((best, *filter(is_near, group)), key=lambda c: c.speed.pp.expected)


def _distinct(contenders: Sequence[Contender], goal: Goal) -> list[Contender]:
    """The contenders by the goal's time, without those that are hardly better than a plainer one (with an f16 cache, or
    fewer cards) of the same variant and engine."""
    chosen: list[Contender] = []
    for c in sorted(contenders, key=lambda c: (*_complexity(c), c.seconds.expected)):
        same = [k for k in chosen if (k.engine, k.variant) == (c.engine, c.variant)]
        if all(_is_worth(c, k, goal) or _is_slower_alternative(c, k) for k in same):
            chosen.append(c)
    return sorted((c for c in chosen if not _outclassed(c, chosen, goal)), key=lambda c: c.seconds.expected)


def _outclassed(contender: Contender, others: list[Contender], goal: Goal) -> bool:
    """Whether one that differs in its cards alone is cheaper, and so much faster that this one is no alternative."""

    def alike(c: Contender) -> object:
        flags = c.fitted.flags
        return c.engine, c.variant, c.candidate.strategy, flags.cache_type_k, flags.cache_type_v, flags.split_mode

    limit = contender.seconds.expected * _OUTCLASSED
    faster = (c for c in others if c.seconds.expected < limit and c.cost(goal) < contender.cost(goal))
    return any(alike(c) == alike(contender) for c in faster)


def _complexity(contender: Contender) -> tuple[bool, bool, int]:
    flags = contender.fitted.flags
    return flags.cache_type_k != "f16", flags.split_mode != "layer", len(contender.candidate.cards)


def _is_worth(contender: Contender, plainer: Contender, goal: Goal) -> bool:
    """Whether it saves enough time or cost over a plainer one. A quantised cache is part of the cost."""
    gain = plainer.cost(goal) - contender.cost(goal)
    if contender.fitted.flags.cache_type_k != plainer.fitted.flags.cache_type_k:
        return gain > -_AS_CHEAP
    return gain > -math.log(_WORTH_SHOWING) or contender.typical < plainer.typical * _WORTH_SHOWING


def _is_slower_alternative(contender: Contender, plainer: Contender) -> bool:
    """Whether it has another strategy and is clearly slower: a real alternative, which ranks by its time."""
    other = contender.candidate.strategy != plainer.candidate.strategy
    slower = contender.seconds.expected / plainer.seconds.expected
    return other and 1 / _WORTH_SHOWING < slower < _NO_ALTERNATIVE


def _limited(contenders: list[Contender]) -> list[Contender]:
    seen: Counter[tuple[Engine, int]] = Counter()
    chosen = []
    for c in contenders:
        seen[c.engine, c.variant] += 1
        if seen[c.engine, c.variant] <= _MAX_PER_VARIANT_AND_ENGINE:
            chosen.append(c)
    return chosen[:MAX_CONFIGS]
