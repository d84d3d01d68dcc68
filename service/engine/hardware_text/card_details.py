"""What a text says about the cards it has named: links, displays, free memory, and which card is meant."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Gpu
from service.engine.hardware_text import lexicon as lex
from service.engine.hardware_text import questions
from service.engine.hardware_text.cards import usual
from service.engine.hardware_text.details import HOW_TO_LINK, SWITCHES, details, linked, widths_of
from service.engine.hardware_text.found import is_shared, unreadable
from service.engine.hardware_text.memory import Memory
from service.engine.hardware_text.mentions import Mention
from service.engine.hardware_text.parts import (
    gpu_follows,
    in_engines_list,
    is_apart,
    is_mentioned_again,
    is_of_other_device,
    is_row,
    same_cards,
)

_PAIR = 2
_WITH_ECC = 0.95  # of a card's nominal memory: at most this share is left where ECC takes some
_LABEL = re.compile(r"\bgpu\s?#?(\d{1,2})\s?[:=]\s?$", re.I)
_ONLY = re.compile(r"\b(?:only|just|solely|purely)\b", re.I)


class CardDetails:
    """The cards that one text has named so far. `owner`: the part that details are about, `current`: which card."""

    def __init__(self, text: str, mentions: Sequence[Mention]) -> None:
        self.text, self.mentions = text, mentions
        self.gpus: list[Gpu] = []
        self.current = -1
        self.memory = Memory(text)
        self.owner = ""
        self.notes: list[str] = []
        self.is_reference = False
        self.waiting: Mention | None = None  # a link or display whose GPU is named next
        self.for_display: dict[str, bool] = {}  # names of cards that drive one, and whether they do nothing else
        self.unlabelled: int | None = None  # cards named before the first `GPU 0:`
        self.quoted: set[str] = set()
        self.numbers: list[int] = []  # in the engine's list, of the GPU named next

    def _read_brackets(self, m: Mention) -> None:
        if self.owner == "gpu":
            self.gpus[self.current] = details(m.text, self.gpus[self.current])
            self.quoted.add(self.gpus[self.current].name)
        elif re.search(r"\d|display|link|p2p", m.text, re.I):
            raise unreadable(m.text, "brackets hold details of the GPU before them, as in `RTX 3090 [24 GiB; display]`")
        else:
            self.notes.append(m.text)

    def _number(self, gpu: Gpu) -> bool:
        """Assign numbers just read to the GPUs of that name, mentioned before or now. Return whether there were any."""
        numbers, self.numbers = self.numbers, []
        if numbers:
            self.gpus = in_engines_list(self.gpus, gpu, numbers)
        return bool(numbers)

    def _named_again(self, m: Mention, gpu: Gpu) -> bool:
        """Return whether a GPU is one named before, as in `the 2080 Ti` or `my 12GB 3060`: what follows is about it."""
        is_reference = m.count is None and lex.REFERENCE.search(self.text, max(0, m.at - 20), m.at) is not None
        first, self.is_reference = self.is_reference, is_reference
        same = same_cards(self.gpus, gpu)
        if (label := _LABEL.search(self.text, max(0, m.at - 12), m.at)) and self.unlabelled is None:
            self.unlabelled = sum(gpu.count for gpu in self.gpus)
        if not same:
            return False
        if is_shared(gpu.name) and m.count is None:  # `Strix Halo (Radeon 8060S)`
            return True
        if len(self.gpus) == 1 and first and m.count:  # `I modified the 2080 Ti, 4x 2080 Ti`
            self.gpus[0] = msgspec.structs.replace(self.gpus[0], count=m.count)
            return True
        are_again = m.plural and m.count is None  # `_are_again`, as other plurals are asked about
        is_listed = label is not None and int(label[1]) < (self.unlabelled or 0)
        is_again = is_reference or are_again or is_listed or is_mentioned_again(m, self.mentions, self.text)
        if not is_again and is_apart(m, self.mentions, self.text):
            questions.ask_about_repeated(m, self.gpus, same)
            self.notes.append(f"{m.text}: named before, taken as the same")
            is_again = True
        if is_again:
            self._go_back_to(m, same)
        return is_again

    def _are_again(self, m: Mention) -> bool:
        """Return whether a plural without a number is of cards that were counted before: `2x 3090 …, 3090s at x8`."""
        counts = [self.gpus[i].count for i in same_cards(self.gpus, Gpu(name=m.name))]
        return m.plural and m.count is None and max(counts, default=1) > 1

    def _go_back_to(self, m: Mention, same: Sequence[int]) -> None:
        """Make a card that was named before the one that details are about. One of several becomes a part of its own.

        Raises InvalidHardware where it is unclear which one is meant, or how many there are.
        """
        count = self.gpus[same[0]].count
        is_one_of_several = m.count == 1 < count and not self.memory.has_size(same[0])
        if len(same) > 1 or (m.count not in (None, count) and not is_one_of_several):
            raise unreadable(m.text, f"it was named before: write each {m.name} once, with its details behind it")
        if is_one_of_several:
            self.gpus[same[0]] = msgspec.structs.replace(self.gpus[same[0]], count=count - 1)
            self.gpus.append(msgspec.structs.replace(self.gpus[same[0]], count=1))
        else:
            self.current = same[0]
        self.memory.take_before(m, self.gpus, self.current)

    def _read_free(self, m: Mention) -> None:
        if lex.OF_DRIVE.search(self.text, max(0, m.at - 30), m.at) and not m.hit[3]:
            self.notes.append(m.text)
            return
        of = (m.hit[3] or "").lower()
        if self.gpus and (self.owner == "gpu" if not of else of.startswith(("v", "g"))):
            self.gpus[self.current] = msgspec.structs.replace(self.gpus[self.current], free_gib=lex.gigabytes(m.hit))
        else:
            self.memory.free = lex.gigabytes(m.hit)

    def _read_used(self, m: Mention) -> None:
        size = lex.gigabytes(m.hit)
        if is_of_other_device(m, self.mentions):
            self.notes.append(m.text.strip("()"))
            return
        is_in_its_bracket = m.gap == "with" and re.search("[),;]", self.text[m.end - 1 : m.end + 1])
        if self.owner == "ram" and is_in_its_bracket and not re.search(r"\s(?:by|for)\s", m.text):
            self.memory.used = size
            return
        if self.owner != "gpu":
            raise unreadable(m.text, "of what? Write it after the GPU that has it, as in `RTX 3090 (21GB free)`")
        gpu = self.gpus[self.current]
        whole = gpu.vram_gib or usual(gpu)
        if gpu.count > 1 or not whole or not 0 <= size < whole:
            raise unreadable(m.text, "how much is free on each? Write it as `RTX 3090 (21GB free)`")
        self.gpus[self.current] = msgspec.structs.replace(gpu, free_gib=whole - size)

    def _read_no_ecc(self, m: Mention) -> None:
        """Take the memory that ECC takes of an old server card as free, where it is off; of RAM it says nothing."""
        if self.owner != "gpu":
            return
        gpu = self.gpus[self.current]
        rows = gpu_rows(gpu.name, gpu.vram_gib)
        nominal = rows[0].vram_gib if rows else None
        takes_memory = nominal and (rows[0].driver_mib or math.inf) < _WITH_ECC * nominal * 1024
        if takes_memory and gpu.free_gib is None:
            self.gpus[self.current] = msgspec.structs.replace(gpu, vram_gib=nominal, free_gib=nominal)
        self.notes.append(m.text)

    def _read_copies(self, m: Mention) -> None:
        if not self.gpus:
            raise unreadable(m.text, HOW_TO_LINK)
        self.gpus[self.current] = msgspec.structs.replace(self.gpus[self.current], measured_copy_gbs=float(m.hit[1]))

    def _read_bandwidth(self, m: Mention) -> None:
        before = next((o for o in reversed(self.mentions) if o.end <= m.at), None)
        is_links = before is not None and before.kind == "link" and m.gap in ("", "with")  # `PCIe 4.0 x16 25.4 GB/s`
        is_others = is_links or is_of_other_device(m, self.mentions)
        gbs = float(m.hit[1]) if m.hit[1] and not is_others else None
        if gbs and self.owner == "gpu" and m.gap in ("", "with"):
            self.gpus[self.current] = msgspec.structs.replace(self.gpus[self.current], bandwidth_gbs=gbs)
        elif gbs and self.owner == "ram":
            self.memory.measured = gbs
        else:
            self.notes.append(m.text)

    def _read_link(self, m: Mention) -> None:
        questions.ask_about_bare_link(m)
        if m.gap != "," and is_of_other_device(m, self.mentions):
            self.notes.append(m.text)
            return
        targets = list(range(len(self.gpus)))
        if (m.gap != "," and self.owner == "gpu") or is_row(m, self.mentions, self.text):
            widths = widths_of(m.text)
            if len(widths) < 2 or len(widths) == self.gpus[self.current].count:
                targets = [targets[self.current]]
        elif not self.gpus or (m.gap == "," and gpu_follows(m, self.mentions)):
            if re.search(r"pci|x\d", m.text, re.I):
                raise unreadable(m.text, HOW_TO_LINK)
            self.waiting = self.waiting or m
            return
        self._link(m, targets)

    def _link(self, m: Mention, targets: Sequence[int]) -> None:
        questions.ask_about_link_of_one(m, self.text, self.mentions, sum(self.gpus[i].count for i in targets))
        self.gpus = linked(self.gpus, m.text, targets)

    def _read_switch(self, m: Mention) -> None:
        if not self.gpus:
            self.waiting = m
            return
        count = self.gpus[self.current].count
        if m.hit[2] and count > _PAIR:  # of some only, which no figure is taken from
            self.notes.append(m.text)
            return
        word = m.hit[1].lower().replace("-", "")
        field = SWITCHES[word.removeprefix("no ")]
        place = re.match(r"\s(?:is\s)?(?:on|at)\s(?:the\s)?(first|second|third|last)\b", self.text[m.end :], re.I)
        if place and place[1].lower() not in ("first", "last"):
            raise unreadable(f"{m.text}{place[0]}", "write it after the GPU that has it, as in `RTX 3090 (display)`")
        i = 0 if place and place[1].lower() == "first" else len(self.gpus) - 1 if place else self.current
        self.gpus[i] = msgspec.structs.replace(self.gpus[i], **{field: not word.startswith("no ")})
        if word in ("display", "monitor"):
            is_all = _ONLY.search(self.text, max(0, m.at - 12), m.end + 12) is not None
            self.for_display[self.gpus[i].name] = is_all
