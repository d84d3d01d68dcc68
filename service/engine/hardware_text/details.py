"""Details in brackets after a GPU's name: `[18.5 GiB free; 936 GB/s; nvlink; display; pci 0 2; GPU-…]`; links."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.hardware import Gpu
from service.engine.hardware_text.found import unreadable

HOW_TO_LINK = "write the link after the GPU that has it, as in `RTX 3090 pcie 3.0 x4`"
_BRACKETS = re.compile(r"\[([^\[\]]{0,1000})\]\s*$")
_BY_WORD = re.compile(
    r"(?:\b(?:via|over|on|through|by)\s(?:an?\s)?)?\b(?:(oculink)|(thunderbolt\s?5|tb5)|(thunderbolt(?:\s?[34])?|tb[34]|usb\s?4)"
    r"|(m\.2\s(?:to\spcie|adapter|riser))|(e-?gpu))(?:\s(?:dock|enclosure|adapter|cable))?\b",
    re.I,
)
_WORDS_FOR_LINKS = ("oculink", "thunderbolt 5", "thunderbolt", "m.2", "egpu")  # in the order of _BY_WORD's groups
_FREE = re.compile(r"(?:\(|\b)(\d{1,5}(?:\.\d{1,4})?)\s?(gib|gb|g|mib|mb)\s(?:are\s)?(?:free|available)\)?", re.I)
_SIZE = re.compile(
    r"(?:\(|\b)(\d{1,5}(?:\.\d{1,4})?)\s?(gib|gb|gigs?|g|mib|mb)\b(?:\s?(?:of\s)?(?:vram|each|a card))?\)?", re.I
)
_COPIES = re.compile(r"\bcopies\s{1,2}(?:at\s{1,2})?(\d{1,4}(?:\.\d{1,3})?)\s?gb/s", re.I)
_BANDWIDTH = re.compile(r"\(?\b(\d{1,5}(?:\.\d{1,3})?)\s?gb/s\)?", re.I)
_PCI_NUMBERS = re.compile(r"pci((?:\s\d{1,3}){1,64})", re.I)
_DEVICE_NUMBERS = re.compile(r"device((?:\s\d{1,3}){1,64})", re.I)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,64}")
SWITCHES = {"nvlink": "nvlink", "p2p": "p2p", "display": "display", "monitor": "display"}  # words and their fields
_SWITCHES = {f"{no}{word}": (field, not no) for word, field in SWITCHES.items() for no in ("", "no ")}


def details(text: str, gpu: Gpu) -> Gpu:
    """Return `gpu` with the details in brackets, if there are any. Raises InvalidHardware for an unknown item."""
    values: dict[str, object] = {}
    if m := _BRACKETS.search(text):
        for item in m[1].split(";"):
            values |= _bracketed(item.strip())
    return msgspec.structs.replace(gpu, **values)


def widths_of(link: str) -> list[int]:
    """Return the lane counts in a link's text: one for all cards, or one per card."""
    return [int(n) for n in re.findall(r"[x/]\s?x?(\d{1,2})", link)]


def linked(gpus: Sequence[Gpu], link: str, targets: Sequence[int]) -> list[Gpu]:
    """Return the GPUs with what `link` says of those at the indices `targets`.

    Raises InvalidHardware where its lane counts are not as many as the cards, or none for several.
    """
    if of_all := re.match(r"(both|all|every)\s", link, re.I):
        is_rest = of_all[1].lower() == "every"  # `5090 on x16, 2x 4090, each on PCIe 4.0 x8`
        return [gpu if is_rest and gpu.pcie else linked([gpu], link[of_all.end() :], [0])[0] for gpu in gpus]
    out, widths, n_cards = list(gpus), widths_of(link), sum(gpus[i].count for i in targets)
    if len(targets) == 1 and len(widths) == 1:
        widths *= n_cards
    if (len(targets) != 1 and not widths) or len(widths) not in (0, n_cards):
        raise unreadable(link, HOW_TO_LINK)
    for i in targets:
        if gpus[i].count > 1 and len(widths) == gpus[i].count and (before := widths_of(gpus[i].pcie or "")):
            together = [*before, widths[0]]  # `2x 3090, one on x16 and one on x4`
            if set(before) != set(widths) and len(set(widths)) == 1:
                if len(together) != gpus[i].count or _generation(link) != _generation(gpus[i].pcie or ""):
                    raise unreadable(link, HOW_TO_LINK)
                widths = together
        own = [widths.pop(0) for _ in range(gpus[i].count)] if widths else []
        out[i] = msgspec.structs.replace(gpus[i], pcie=_closer(_link_of(link, own), gpus[i].pcie))
    return out


def _closer(link: str, before: str | None) -> str:
    """What two statements say of one link: `thunderbolt eGPU` is Thunderbolt, `PCIe 3.0 x16 @ x8` has 3.0 and x8."""
    if before and link == "egpu":
        return before
    only_lanes = re.fullmatch(r"x\d{1,2}(?:/x\d{1,2})*", link)
    return f"{_generation(before)} {link}".strip() if before and only_lanes else link


def _link_of(link: str, widths: Sequence[int]) -> str:
    """The link of cards with these lane counts, in the generation that `link` states."""
    if m := _BY_WORD.fullmatch(link.strip(" ()")):
        return next(word for word, group in zip(_WORDS_FOR_LINKS, m.groups(), strict=True) if group)
    generation = _generation(link)
    lanes = "/".join(f"x{n}" for n in (widths[:1] if len(set(widths)) == 1 else widths))
    return f"{generation} {lanes}".strip()


def write_details(gpu: Gpu) -> str:
    """Return the details in brackets, as `details` reads them back; empty if only the name is known."""
    items = [f"{gpu.vram_gib:.6g} GiB"] if gpu.vram_gib is not None else []
    items += [f"{gpu.free_gib:.6g} GiB free"] if gpu.free_gib is not None else []
    items += [f"{gpu.bandwidth_gbs:.6g} GB/s"] if gpu.bandwidth_gbs is not None else []
    items += [f"pcie {re.sub(r'[][;]', ' ', gpu.pcie)}"] if gpu.pcie else []
    items += [f"copies {gpu.measured_copy_gbs:.6g} GB/s"] if gpu.measured_copy_gbs is not None else []
    switches = (("nvlink", gpu.nvlink), ("p2p", gpu.p2p), ("display", gpu.display))
    items += [name if value else f"no {name}" for name, value in switches if value is not None]
    items += ["pci " + " ".join(map(str, gpu.pci_order))] if gpu.pci_order else []
    items += ["device " + " ".join(map(str, gpu.device_order))] if gpu.device_order else []
    items += [" ".join(gpu.uuids)] if gpu.uuids else []
    return f" [{'; '.join(items)}]" if items else ""


def _bracketed(item: str) -> dict[str, object]:
    if item.lower() in _SWITCHES:
        name, value = _SWITCHES[item.lower()]
        return {name: value}
    if m := _PCI_NUMBERS.fullmatch(item):
        return {"pci_order": [int(n) for n in m[1].split()]}
    if m := _DEVICE_NUMBERS.fullmatch(item):
        return {"device_order": [int(n) for n in m[1].split()]}
    if item.lower().startswith("pcie "):
        return {"pcie": item[5:].strip()}
    if all(_UUID.fullmatch(part) for part in item.split()) and item:
        return {"uuids": item.split()}
    for pattern, field in ((_COPIES, "measured_copy_gbs"), (_BANDWIDTH, "bandwidth_gbs")):
        if m := pattern.fullmatch(item):
            return {field: float(m[1])}
    for pattern, field in ((_FREE, "free_gib"), (_SIZE, "vram_gib")):
        if m := pattern.fullmatch(item):
            return {field: float(m[1]) / (1024 if m[2].lower().startswith("m") else 1)}
    raise unreadable(
        f"[{item}]",
        "in brackets write `24 GiB`, `18 GiB free`, `936 GB/s`, `pcie 4.0 x8`, `copies 12.4 GB/s`, `nvlink`, `p2p`, "
        "`display`",
    )


def _generation(text: str) -> str:
    digits = re.search(r"(?<![x/\d.])([1-6])(?:\.\d)?(?=\s?x|\s|$)", re.sub(r"x\s+(?=\d)", "x", text, flags=re.I))
    return f"{digits[1]}.0" if digits else ""
