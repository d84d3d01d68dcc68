"""The lines to paste: which devices the engine may see, where the files go, server and benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from service.engine.advice import Commands
from service.engine.commands import render
from service.engine.commands.download import download, model_path
from service.engine.config import Engine, Flags
from service.engine.hardware import Rig

MODELS_DIR = "models"
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}


class Files(msgspec.Struct, frozen=True):
    """Where a variant is: its Hub repo (None: files on this disk) and the paths of its shards inside it, in order."""

    repo: str | None
    revision: str | None
    paths: tuple[str, ...]


def environment(rig: Rig, cards: Sequence[int]) -> dict[str, str]:
    """Return the variables that show an engine exactly `cards`, in our order.

    Nothing is set when all cards are used and their order is the runtime's own (fastest first). Cards left unused are
    hidden: both engines create a context on every card they see.
    """
    variable = _VISIBLE.get(rig.cards[0].backend) if rig.cards else None
    if variable is None:
        return {}
    chosen = [rig.cards[c] for c in cards]
    if chosen and all(card.uuid for card in chosen):
        return {variable: ",".join(card.uuid or "" for card in chosen)}
    if chosen and variable == "CUDA_VISIBLE_DEVICES" and all(card.pci_index is not None for card in chosen):
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", variable: ",".join(str(card.pci_index) for card in chosen)}
    if tuple(cards) == tuple(range(len(rig.cards))):
        return {}
    return {variable: ",".join(str(c) for c in cards)}


def commands(engine: Engine, flags: Flags, files: Files, env: Mapping[str, str], models_dir: str | None) -> Commands:
    """Return the download, server and benchmark lines of a config."""
    folder = models_dir or MODELS_DIR
    path = model_path(files.repo, files.paths, folder) if files.repo else files.paths[0]
    prefix = ("numactl", "--interleave=all") if flags.numa == "distribute" else ()
    return Commands(
        download=download(files.repo, files.paths, folder, revision=files.revision) if files.repo else "",
        server=render(engine, "server", flags, model_path=path, env=env, prefix=prefix),
        bench=render(engine, "bench", flags, model_path=path, env=env, prefix=prefix),
    )
