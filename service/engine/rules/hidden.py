"""Cards that a command hides from its engine, and what it could do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from service.engine.commands.changes import ALL_FOR_THE_CONTAINER
from service.engine.commands.unwrap import IN_CONTAINER, NOT_GIVEN, WITHOUT_BACKEND
from service.engine.rules.case import Case
from service.engine.rules.fitting import fewer_layers, other_placements, tried
from service.engine.rules.placement import more_experts, without_rules
from service.engine.rules.proof import request_seconds
from service.engine.rules.rule import CARDS, WORTH_SAYING, Found, rule
from service.engine.run.devices import hidden_cards


@rule(
    "no-gpu-in-container", "error", "which-card-is-cuda0",
    "docker-run(1), --gpus; docs/docker.md of llama.cpp: images without a back end in their name run on the CPU",
    fix="--gpus all, and an image of the GPU's back end",
)  # fmt: skip
def no_gpu_in_container(case: Case) -> Iterator[Found]:
    """A container that gets no GPU, or whose program cannot use one, on a machine that has one."""
    given = case.parsed.env.get(IN_CONTAINER)
    if given == WITHOUT_BACKEND and case.rig.cards:
        yield Found(
            "the image is built for the CPU only: no GPU is used, even if the container has one",
            "an image with the GPU's back end in its name (server-cuda, server-vulkan, server-rocm)",
        )
    elif given == NOT_GIVEN and case.rig.cards:
        yield Found(
            "the container gets no GPU: everything runs on the CPU, unless NVIDIA's runtime is the default",
            changes=lambda: _with_gpus(case),
        )


def _with_gpus(case: Case) -> Iterator[Sequence[str]]:
    """Yield the changes with which a container has all GPUs, and what then has room on them; else how it gets them."""
    nvidia = all(card.backend == "cuda" for card in case.rig.cards)
    shown = tried(case, ALL_FOR_THE_CONTAINER) if nvidia else None
    if shown is not None:
        more = (f"{ALL_FOR_THE_CONTAINER}; {text}" for text in _used(shown) if text)
        yield [ALL_FOR_THE_CONTAINER, *more]
    given = "--gpus all before the image (compose: `gpus: all`)"
    yield [given if nvidia else "--device /dev/kfd --device /dev/dri before the image"]


@rule(
    "card-hidden", "info", CARDS, "computed: memory and speed of this command with all cards",
    fix="all cards, and what then has room on them", about="speed", optional=True,
)  # fmt: skip
def card_hidden(case: Case) -> Iterator[Found]:
    """`-dev`, `-sm none`, a variable or the container hides a card with which everything fits, or which makes the
    command clearly faster.

    It may be hidden for something else, so a corrected command leaves it hidden.
    """
    hidden = hidden_cards(case.parsed, case.rig, case.devices) if case.devices and not case.has_remote else None
    if hidden is not None:
        names = Counter(case.rig.cards[i].name for i in hidden.cards)
        cards = ", ".join(f"{count}x {name}" if count > 1 else name for name, count in names.items())
        are = "is" if len(hidden.cards) == 1 else "are"
        change = hidden.change + ("; leave out -ts" if case.flags.tensor_split else "")
        yield Found(f"{cards} {are} hidden by {hidden.by}", changes=lambda: _with_all(case, change))


def _with_all(case: Case, show: str) -> Iterator[Sequence[str]]:
    """Yield the changes with which everything fits on all cards, and faster than without the hidden ones."""
    shown = tried(case, show)
    if shown is None:
        return
    now = [case] if case.all_fits else [tried(case, text) for text in other_placements(case)]
    most = min((request_seconds(one) for one in now if one and one.all_fits), default=None)
    good = []
    for text in (show, *(f"{show}; {more}" for more in _used(shown) if more)):
        after = tried(case, text)
        if after and after.all_fits and (most is None or request_seconds(after) * WORTH_SAYING < most):
            good.append(text)
    yield good


def _used(shown: Case) -> Iterator[str]:
    """What puts more on the cards once all are shown."""
    if shown.fit_places:
        return
    if not shown.all_fits:
        yield from other_placements(shown)
        return
    if 0 <= shown.flags.n_gpu_layers <= shown.model.n_layer and (whole := tried(shown, "-ngl 999")):
        yield "-ngl 999" if whole.all_fits else fewer_layers(whole) or ""
    if shown.experts_in_ram:
        yield without_rules(shown).removesuffix("; ")
        yield more_experts(shown)
