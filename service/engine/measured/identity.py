"""What a result is filed under: its model and its kind of machine, by names that people search for.

A repo's name is its owner's word; the number of weights comes from the header and goes into the slug, so that no
small model is filed under the name of a large one.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from typing import Literal, TypeAlias

import msgspec

from service.engine.catalogue import resolve
from service.engine.catalogue.rows import known_gpus
from service.engine.hardware import Card, Hardware, Rig
from service.engine.model import Model
from service.engine.tensor_names import role_of
from service.engine.units import GIB, MIB

NO_GPU = "no GPU"
MOST_NAME = 80
MOST_SLUG = 100
_PACKED = re.compile(
    r"(?i)[-_. ]+(?:i1-)?(?:gguf|imatrix|i?q[1-8](?:_[a-z0-9]+)*|smol-iq\w+|(?:bf|fp?)(?:16|32)|mxfp4|ud)(?=$|[-_. ])"
)
_OWNER = re.compile(r"(?i)^(?:([a-z0-9.]+)_(?=\1)|[a-z0-9.]+-(?:ai|org|labs|research)_)")
_STATED = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?)(b|m)(?![a-z0-9])")
_ROUNDED = 0.08  # a name's size is rounded, and may leave out the embedding
_MAKERS = re.compile(
    r"\b(?:NVIDIA|GeForce|AMD|Intel|Core(?! Ultra)|Ryzen(?= Threadripper)|Processor|CPU|Workstation Edition)\b"
)


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A model as results are filed: `name` without the quantisation's, `slug` for addresses.

    `n_params`: weights of all tensors; `n_active`: those that a token uses; `bpw`: bits per weight over all tensors.
    All of these are None where no header was read.
    """

    name: str
    slug: str
    arch: str | None = None
    n_params: int | None = None
    n_active: int | None = None
    bpw: float | None = None


class RigIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as results are filed: its cards in words (`2x RTX 3090`, `no GPU`), the slug of them for addresses.

    `vram_mib`: of all cards, 0 without one; `cpu`: as the catalogue names it, `ram_gib`: None where it was not said.
    """

    gpus: str
    slug: str
    vram_mib: int
    cpu: str | None
    ram_gib: int | None


def model_identity(repo: str, model: Model | None) -> ModelIdentity:
    """Return the identity under which results of a repo's model are filed. `model`: from its header, None if not
    read."""
    name = model_name(repo)
    if model is None:
        return ModelIdentity(name=name, slug=slug_of(name))
    sleeping = sum(t.n_elements for t in model.tensors if role_of(t.name) == "expert") if model.n_expert else 0
    active = model.n_elements - sleeping + sleeping * model.n_expert_used // max(model.n_expert, 1)
    return ModelIdentity(
        name=name,
        slug=model_slug(name, model.n_elements),
        arch=model.architecture,
        n_params=model.n_elements,
        n_active=active,
        bpw=round(model.bpw, 3),
    )


def model_name(repo: str) -> str:
    """Return the model's name in a repo's: without the owner, GGUF and the quantisation."""
    last = plain(repo.rpartition("/")[2])
    return (_PACKED.sub("", _OWNER.sub("", last)).strip("-_. ") or last or "unnamed")[:MOST_NAME]


def model_slug(name: str, n_params: int | None) -> str:
    """Return a model's name for addresses; with its number of weights where the name does not say it already."""
    slug = slug_of(name)
    if n_params is None or any(_agrees(float(n), unit, n_params) for n, unit in _STATED.findall(slug)):
        return slug
    return f"{slug[: MOST_SLUG - 8]}-{size_of(n_params)}"


def size_of(n_params: int) -> str:
    """Return a number of weights in words of the field: `0.6b`, `8.2b`, `671b`, `270m`."""
    if n_params < 0.5e9:
        return f"{max(round(n_params / 1e6), 1)}m"
    billions = n_params / 1e9
    return f"{billions:.0f}b" if billions >= 10 else f"{billions:.1f}b".replace(".0b", "b")


def _agrees(number: float, unit: str, n_params: int) -> bool:
    stated = number * (1e9 if unit == "b" else 1e6)
    return stated > 0 and abs(n_params / stated - 1) <= _ROUNDED


def rig_identity(hardware: Hardware, rig: Rig) -> RigIdentity:
    """Return the identity under which results of a machine are filed. `rig`: what its hardware resolves to."""
    cpu = short_name(rig.cpu_model) if rig.cpu_model else None
    ram = hardware.ram.total_gb if hardware.ram else None
    cards = Counter(_card(card) for card in rig.cards)
    gpus = " + ".join(f"{n}x {name}" if n > 1 else name for name, n in cards.items()) or NO_GPU
    unified = any(card.unified for card in rig.cards) and ram is not None
    named = gpus if rig.cards else f"cpu {cpu or 'unknown'}"
    return RigIdentity(
        gpus=gpus[:200],
        slug=slug_of(f"{named} {ram:g}gb" if unified else named),
        vram_mib=sum(card.total for card in rig.cards) // MIB,
        cpu=f"{rig.sockets}x {cpu}" if cpu and rig.sockets > 1 else cpu,
        ram_gib=None if ram is None or not math.isfinite(ram) else round(ram),
    )


def machine_name(gpus: str, cpu: str | None) -> str:
    """Return what people call a machine: its cards, or its CPU where it has none."""
    return f"{cpu or 'CPU not said'}, {NO_GPU}" if gpus == NO_GPU else gpus


def _card(card: Card) -> str:
    """A card's name, with its memory where the maker sells several sizes by one name."""
    sizes = {row.vram_gib for row in known_gpus() if row.name == card.name}
    return f"{short_name(card.name)} {round(card.total / GIB)}GB" if len(sizes) > 1 else short_name(card.name)


def short_name(name: str) -> str:
    """Return a GPU's or CPU's name without its maker: `RTX 3090`, `EPYC 9355`."""
    shown = plain(name)
    return (" ".join(_MAKERS.sub("", shown).split()) or shown)[:MOST_NAME].strip()


def plain(text: str) -> str:
    """Return a name that anybody may have made up as printable text: no control or direction marks, one line."""
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] not in "CM")
    return " ".join(kept.split())


def slug_of(text: str) -> str:
    """Return text as it stands in an address: lower-case letters, digits, points and hyphens."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9.]+", "-", ascii_only).strip("-.")[:MOST_SLUG]
    return slug.strip("-.") or "unnamed"


MatchKind: TypeAlias = Literal["exact", "near"]
_SAME_SPEED = 0.05  # of memory: channels times MT/s


def match_kind(machine: Hardware, advised: Rig, other: Hardware, rig: Rig) -> MatchKind:
    """Return `exact` for the same GPUs and count, CPU, channels and memory speed within 5 %; else `near`.

    A CPU that was not stated is not known to be the same.
    """
    same_cpu = advised.cpu_model is not None and (advised.cpu_model, advised.sockets) == (rig.cpu_model, rig.sockets)
    same = _card_names(advised) == _card_names(rig) and same_cpu and _same_ram(machine, other)
    return "exact" if same else "near"


def _card_names(rig: Rig) -> Counter[tuple[str, int]]:
    return Counter((card.name, round(card.total / GIB)) for card in rig.cards)


def _same_ram(machine: Hardware, other: Hardware) -> bool:
    stated, there = machine.ram, other.ram
    if stated and there and stated.channels and there.channels and stated.channels != there.channels:
        return False
    one, two = _unmeasured_bandwidth(machine), _unmeasured_bandwidth(other)
    return abs(one - two) <= _SAME_SPEED * max(one, two)


def _unmeasured_bandwidth(hardware: Hardware) -> float:
    """GB/s by channels and speed, so that a machine that measured its own compares with one that did not."""
    ram = hardware.ram and msgspec.structs.replace(hardware.ram, measured_bandwidth_gbs=None)
    return resolve(msgspec.structs.replace(hardware, ram=ram)).cpu_bandwidth_gbs
