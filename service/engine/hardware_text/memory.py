"""Decides whose memory each size in a text is (a card's, all cards', the machine's), or asks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Gpu, Ram
from service.engine.hardware_text import lexicon as lex
from service.engine.hardware_text import questions
from service.engine.hardware_text.cards import (
    CLOSE,
    INSTALLED,
    as_laptops,
    fits,
    largest,
    most,
    names_ram,
    ram_in_sum,
    sizes_of,
    usual,
)
from service.engine.hardware_text.found import is_shared, unreadable
from service.engine.hardware_text.mentions import Mention, Size

_THOUSANDS = 1.073741824  # GB of a thousand million bytes in a GiB: 25.8 GB of 24
_ROUNDED = 0.07  # tolerance on a stated sum: 190 for 192
# Usual GB of RAM, installed or as displayed; any other size must be called RAM.
_USUAL_RAM = frozenset((
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32, 36, 40, 48, 60, 62, 63, 64, 72, 80, 94, 96, 112, 120, 125,
    126, 128, 144, 160, 187, 188, 192, 196, 200, 224, 250, 251, 256, 288, 300, 320, 384, 400, 440, 448, 500, 503,
    512, 576, 640, 754, 755, 768, 800, 896, 960, 1000, 1007, 1024, 1152, 1280, 1511, 1536, 2048, 2304, 3072, 4096,
    6144, 8192,
))  # fmt: skip
_CLOCKS = {"DDR3": 1066, "DDR4": 1866, "DDR5": 3600}  # less MHz than this are the clock, at twice which it transfers
_MODULES = frozenset((4, 8, 16, 24, 32, 48, 64, 96, 128))  # GB of one module
_TWO = 2
_LEAST_RAM = 16  # GB of a machine with such a GPU, where it is not stated
_NO_CORES = 36  # from here on, a Mac's memory size cannot be its number of cores (except M1 Ultra: 48, 64)
_SHOWN = 0.93  # a machine displays at least this share of its modules' sum
_SSD_GB = 256  # the smallest drive of a Mac
_DISK_GB = 1000  # from here on, a second size is a disk's if another is called RAM


class Memory:
    """What a text says about memory. `sold`: a Mac's chip and the GB it is sold with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sizes: list[Size] = []
        self.type: str | None = None
        self.mts: int | None = None
        self.in_mhz = False
        self.channels: int | None = None
        self.free: float | None = None
        self.used: float | None = None
        self.measured: float | None = None
        self.of_modules: questions.Modules | None = None
        self.kits: list[questions.Modules] = []
        self.sold: tuple[str, tuple[int, ...]] | None = None
        self.notes: list[str] = []
        self.total: float | None = None
        self.maybe_cores = ""  # a number after a Mac's chip
        self.aside: Size | None = None  # what the firmware sets aside for a GPU without memory of its own

    def modules(self, m: Mention, owner: str, gpus: Sequence[Gpu], current: int, times: int = 1) -> str:
        """Take `8x32GB`, `8 sticks of 64GB` or, after a size, `(4x32)`; return whose they are, `gpu` or `ram`."""
        n, each = next((a, b) for a, b in zip(m.hit.groups()[::2], m.hit.groups()[1::2], strict=True) if a)
        gpu = gpus[current] if owner == "gpu" and m.text.endswith(")") else None
        if gpu and gpu.count == int(n) and fits(gpu, float(each)):
            if self._since_size(m) in ("", "("):  # `2x Arc Pro B60 48GB (2x24)`
                self.sizes[-1].total = True
                return "gpu"
            if m.gap in ("", "with"):
                self.behind_gpu(float(each), current % len(gpus), m.text)
                return "gpu"
        if float(each) % 1:  # no module has that
            self.notes.append(m.text)
            return owner
        if m.hit[5] and not self.sizes:
            raise unreadable(m.text, "write RAM as `512GB DDR5-4800 x8`")
        if m.hit[7]:
            self.notes.append(f"{m.text}: taken as RAM, {n} modules of {each} GB")
        self.of_modules = (float(n) * float(each) * times, int(n) * times, m.text)
        self.kits.append(self.of_modules)
        return "ram"

    def _since_size(self, m: Mention) -> str | None:
        """What separates a mention from the last size, without the words that say of what it is; None if none is."""
        since = self.text[self.sizes[-1].end : m.at] if self.sizes else None
        return since if since is None else re.sub(r"\b(?:v?ram|memory|total)\b|\s", "", since, flags=re.I)

    def are_modules(self, n: int, at: int) -> bool:
        """Take a count right after a module's size, as in `32GB x4` or `32G*4`; return whether it was one.

        So is `64GB DDR5-4800 x12`, as no module has 5.3 GB; `512GB DDR5-4800 x8` may be the sum.
        """
        last = self.sizes[-1] if self.sizes else None
        if last is None or last.role not in ("ram", "bare") or last.gb not in _MODULES or self.of_modules is not None:
            return False
        between = self.text[last.end : at].strip(" (")
        is_speed = bool(between) and lex.SPEED_AND_TYPE.fullmatch(between) is not None and last.gb / n not in _MODULES
        if (between and not is_speed) or n < _TWO:
            return False
        self.sizes.pop()
        self.of_modules = (last.gb * n, n, f"{last.text} x{n}")
        self.kits.append(self.of_modules)
        return True

    def kind(self, m: Mention) -> None:
        """Take `DDR5-4800`."""
        self.type = self.type or m.hit[1].upper()
        if self.sizes and self.sizes[-1].role == "bare":
            self.sizes[-1].role = "ram"
        if m.hit[2]:
            is_rate = "-" in m.text or m.text[-1:].isalpha() or lex.RATE.fullmatch(m.hit[2])
            if not is_rate and gpu_rows(m.hit[2]):
                raise unreadable(m.text, f"`{m.hit[2]}` is a GPU: write a comma before it")
            self.rate(m.hit[2], m.text)

    def rate(self, value: str, text: str = "") -> None:
        """Take a transfer rate; a second, different one becomes a note."""
        if self.mts is None:
            self.mts, self.in_mhz = int(value), text.lower().endswith("mhz")
        elif self.mts != int(value):
            self.notes.append(f"{value} MT/s")

    def is_of_mac(self, text: str) -> bool:
        """Take a bare number after a Mac's chip as its memory: `M1 Max 64`; `M1 Max 32` only if no other size is
        stated.

        If it may also be the number of cores, it is taken as memory with a note.
        """
        chip, sizes = self.sold or ("", ())
        if not text.isdecimal() or int(text) not in sizes:
            return False
        if int(text) < _NO_CORES or chip == "Apple M1 Ultra":
            self.maybe_cores = text
        else:
            self.sizes.append(Size(gb=float(text), role="ram", text=text, at=0, end=0))
        return True

    def is_rate(self, number: str) -> bool:
        """Return whether a bare number after RAM is its transfer rate. Raises InvalidHardware if it may also be a
        card."""
        if not lex.RATE.fullmatch(number):
            return False
        gb = self.of_modules[0] / self.of_modules[1] if self.of_modules else self.sizes[-1].gb if self.sizes else 0
        if self.type is None and any(row.vram_gib == gb for row in gpu_rows(number)):
            said = f"{gb:g}GB {number}"
            raise unreadable(
                said, f"it may be a GPU or RAM: write `RX {number}`, or the RAM as `{gb:g}GB DDR5-{number}`"
            )
        return True

    def size(self, m: Mention, owner: str, gpus: Sequence[Gpu], current: int, times: int = 1) -> str:
        """Take a size and return whose it is: `gpu`, of which `current` is meant, or `ram`."""
        gb, behind = lex.gigabytes(m.hit) * times, self.text[m.end : m.end + 60]
        before = self.text[max(0, m.at - 30) : m.at]
        last = self.sizes[-1] if self.sizes else None
        between = self._since_size(m)
        is_limit = re.match(r"\slimit\b", lex.ROLE_VRAM.sub("", behind, count=1)) is not None
        if last and between in ("(", "/", "=") and abs(gb - last.gb) <= CLOSE * last.gb != 0 and not is_limit:
            return owner  # the same size in other units: `16GB (16311 MiB)`
        if last and between == "(" and last.role in ("gpu", "vram") and gb * gpus[last.gpu].count == last.gb:
            last.each = False
            return owner  # `2x 3090 48GB (24GB each)`
        is_cards = owner == "gpu" and fits(gpus[current], gb)  # `4060 Ti 16GB model`
        if why := _of_something_else(before, behind, gb, owner, is_cards=is_cards):
            self.notes.append(f"{m.text}: {why}")
            return owner
        size = Size(gb=gb, role="bare", text=m.text, at=m.at, end=m.end, gpu=current % len(gpus) if gpus else -1)
        line = self.text[self.text.rfind("\n", 0, m.at) + 1 : m.at].lower()
        size.near = owner == "gpu" and gpus[current].name.lower() in line
        size.behind = size.near and m.gap in ("", "with")
        of_it = size.near and re.search(rf"{re.escape(gpus[current].name.lower())}\s?\([^()]*$", line) is not None
        since = self.text[self.sizes[-1].end : m.at] if self.sizes else ":"
        used = (
            since.rstrip()[-1:] not in (":", "=")
            and since.lstrip(" ")[:1] != "\n"
            and not re.sub(r"\W|of|v?ram|memory", "", since, flags=re.I)
        )
        named = None if used else lex.ROLE_BEFORE.search(before)
        of_card = owner == "gpu" and lex.RAM_OF_EACH.match(behind) is not None and fits(gpus[current], gb)
        if lex.OF_WSL.match(behind) or lex.WSLCONFIG.search(before):
            size.role = "wsl"
        elif (
            of_card
            or lex.ROLE_VRAM.match(behind)
            or (named and named[1].lower().startswith("v" if self.sold else ("v", "g")))
        ):
            size.role = "vram"
        elif m.hit[3] or lex.ROLE_RAM.match(behind) or named:
            size.role = "ram"
        elif (
            owner == "gpu"
            and (m.gap in ("", "with") or ((of_it or _is_of_card(before, behind, gb)) and fits(gpus[current], gb)))
            and not any(s.gpu == size.gpu and s.role == "gpu" for s in self.sizes)
        ):
            size.role = "gpu" if gpus[current].vram_gib is None else "bare"
        if size.role == "bare" and owner == "gpu" and m.gap in ("", "with") and self._is_said_of(size):
            return owner  # `2x RTX 3090 24GB. GPU 0: RTX 3090 24GB`
        after = lex.ROLE_VRAM.sub("", behind, count=1) if size.role == "vram" else behind
        size.each = lex.ROLE_EACH.search(after) is not None
        size.total = (
            lex.ROLE_TOTAL.search(f"{before}") is not None
            or re.match(r"[^,;\n.]{0,12}\b(?:total|combined|altogether|together|overall|pool)\b", after, re.I)
            is not None
        )
        size.limit = size.role == "vram" and is_limit
        size.in_use = re.search(r"\b(?:us(?:es?|ing)|takes?|consum\w+)\s(?:\w+\s)?$", before, re.I) is not None
        self.sizes.append(size)
        return "gpu" if size.role in ("gpu", "vram") and gpus else "ram"

    def _is_said_of(self, size: Size) -> bool:
        """Return whether the same size was stated of the same card before."""
        return any(s.role in ("gpu", "before") and s.gpu == size.gpu and s.gb == size.gb for s in self.sizes)

    def behind_gpu(self, gb: float, gpu: int, text: str) -> None:
        """Take the size between a number and a card's name: `2x 24GB 3090`."""
        self.sizes.append(Size(gb=gb, role="before", text=text, at=0, end=0, gpu=gpu, each=True, own=True))

    def take_before(self, m: Mention, gpus: Sequence[Gpu], current: int) -> None:
        """Assign a size right before a card's name (`24GB 3090`) to the card, which is `current`."""
        last = self.sizes[-1] if self.sizes else None
        between = self.text[last.end : m.at] if last is not None else ""
        if last is None or (m.count and not fits(gpus[current], last.gb)):  # `768GB 2x T4`
            return
        if last.role == "bare" and "\n" not in between and lex.AT_CARD.fullmatch(between):
            last.role, last.gpu = "before", current % len(gpus)
            last.own = re.search(r"\w", between) is not None

    def settle(self, gpus: Sequence[Gpu], *, is_mac: bool) -> list[Gpu]:
        """Return the cards with their memory. Raises InvalidHardware for a size that could belong to either."""
        cards = list(gpus)
        for size in self.sizes:
            if size.role in ("gpu", "before"):
                self._at_card(size, cards)
        if len(self.kits) > 1:
            self.of_modules = questions.joined(self.kits, {s.gb for s in self.sizes if s.role in ("ram", "bare")})
        self._behind_comma(cards)
        if self.of_modules is not None:
            self._check_modules(*self.of_modules)
        for size in self.sizes:
            if size.role == "vram":
                self._of_cards(size, cards, is_mac)
        self._settle_ram(cards)
        return cards

    def keep(self, cards: Sequence[int]) -> None:
        """Take that only these of the cards are left, by their numbers so far."""
        for size in self.sizes:
            if size.gpu not in cards and size.role in ("gpu", "before"):
                size.role = "bare"
            size.gpu = cards.index(size.gpu) if size.gpu in cards else -1

    def is_of(self, number: int, gpu: Gpu, *, not_of: Gpu) -> bool:
        """Return whether the memory stated with a card is one that `gpu` is sold with and `not_of` is not."""
        sizes = [size.gb for size in self.sizes if size.role in ("gpu", "before") and size.gpu == number]
        sizes += [gpu.vram_gib] if gpu.vram_gib else []
        return any(fits(gpu, gb) and not fits(not_of, gb) for gb in sizes)

    def has_size(self, number: int) -> bool:
        """Return whether memory is stated with a card, or after it as VRAM."""
        return any(size.role in ("gpu", "before", "vram") and size.gpu == number for size in self.sizes)

    def _check_modules(self, total: float, n: int, text: str) -> None:
        shown = [s for s in self.sizes if _SHOWN * total <= s.gb < total]  # `free` shows 251 GiB of 256
        others = [s for s in self.sizes if s.role in ("ram", "bare") and s.gb != total and s not in shown]
        if any(s.role == "ram" or s.gb < _DISK_GB for s in others):
            raise unreadable(
                text, f"the modules add up to {total:g} GB, but the text says {others[0].text}: leave out one of them"
            )
        self.sizes = [s for s in self.sizes if not (s.role in ("ram", "bare") and (s.gb == total or s in shown))]
        self.sizes.append(Size(gb=total, role="ram", text=text, at=0, end=0))
        self.channels = self.channels or n

    def _at_card(self, size: Size, cards: list[Gpu]) -> None:
        gpu = cards[size.gpu]
        rows = gpu_rows(gpu.name)
        if rows and rows[0].unified and rows[0].vram_gib is None:
            if rows[0].backend not in ("metal", "cuda") and any(
                other.gb > size.gb for other in self.sizes if other.role in ("ram", "bare")
            ):  # `Radeon 780M 4GB, 64GB DDR5`
                cards[size.gpu] = msgspec.structs.replace(gpu, vram_gib=size.gb)
                self.aside = size
                return
            exact = next(
                (row.name for row in gpu_rows(gpu.name, size.gb) if row.name.endswith(f" {size.gb:g}GB")), None
            )
            cards[size.gpu] = msgspec.structs.replace(gpu, name=exact or gpu.name)
            size.role = "ram"
            return
        if fits(gpu, size.gb):
            cards[size.gpu] = msgspec.structs.replace(gpu, vram_gib=size.gb)
            return
        if gpu.count > 1 and not size.each and rows and fits(gpu, size.gb / gpu.count):
            cards[size.gpu] = msgspec.structs.replace(gpu, vram_gib=size.gb / gpu.count)
            return
        has_ram = any(s.role == "ram" for s in self.sizes)
        if ram := ram_in_sum(gpu, size.gb):
            cards[size.gpu], size.gb = msgspec.structs.replace(gpu, vram_gib=size.gb - ram), ram
        if names_ram(gpu, size.gb):
            if not has_ram:
                size.role, size.gb = "ram", size.gb * gpu.count
                part = f"{ram:g} GB of it " if ram else ""
                own = "which each of them has in addition to its own memory"
                self.notes.append(f"{gpu.name} {size.text}: {part}taken as RAM, {own}")
            return
        mobile = as_laptops(cards, size.gb)
        if mobile and (has_ram or size.gb not in INSTALLED):
            cards[size.gpu] = mobile
            self.notes.append(f"{gpu.name} {size.text}: taken as a laptop's, which alone has that")
        elif has_ram and size.gb >= _DISK_GB:
            size.role = "disk"
            self.notes.append(f"{size.text}: no part of the memory, as the RAM is stated")
        elif size.gb > most(gpu) * gpu.count and not has_ram and rows and not size.own:
            size.role = "ram"
            if size.text:
                self.notes.append(
                    f"{gpu.name} {size.text}: {size.gb:g} GB taken as RAM, the card is sold with {largest(gpu):g}"
                )
        elif not rows:
            right = f"`{gpu.name} [{size.gb / max(gpu.count, 2):g} GiB]`"
            raise unreadable(
                f"{gpu.name} {size.text}",
                f"is {size.gb:g} GB the memory of one card? Write that of each, as in {right}",
            )
        else:
            said = f"{gpu.count}x {gpu.name}" if gpu.count > 1 else gpu.name
            sold = " or ".join(f"{gb:g}" for gb in sorted(row.vram_gib for row in rows if row.vram_gib)) or "other"
            raise unreadable(
                f"{gpu.name} {size.text}",
                f"{rows[0].name} is sold with {sold} GB: write `{said}, {size.gb:g}GB RAM`, or "
                f"`{said} [{size.gb:g} GiB]`",
            )

    def _behind_comma(self, cards: list[Gpu]) -> None:
        """Assign a size near a card to the card, if another is the RAM: `H20, 96GB, 1TB`, `3070 with 8GB RAM, 32GB`."""
        machine = [s for s in self.sizes if s.role in ("ram", "bare")]
        modules = {self.of_modules[0]} if self.of_modules else set[float]()
        if len(modules.union(s.gb for s in machine)) < 2:
            return
        is_named = bool(modules) or any(s.role == "ram" and not s.behind for s in machine)
        for size in machine:
            if 0 <= size.gpu < len(cards):
                gpu, is_near = cards[size.gpu], size.near if size.role == "bare" else size.behind and is_named
                if gpu.vram_gib is None and is_near and fits(gpu, size.gb):
                    cards[size.gpu], size.role = msgspec.structs.replace(gpu, vram_gib=size.gb), "gpu"

    def _of_cards(self, size: Size, cards: list[Gpu], is_mac: bool) -> None:
        if not cards:
            raise unreadable(
                f"{size.text} VRAM", "which GPU has that? Write its name in front, as in `RTX 4060 Ti 16GB`"
            )
        if is_mac and not size.limit:
            raise unreadable(f"{size.text} VRAM", "a Mac has one shared memory: write it as `M3 Ultra 512GB`")
        together = sum((gpu.vram_gib or usual(gpu)) * gpu.count for gpu in cards)
        n_cards = sum(gpu.count for gpu in cards)
        sums = n_cards > 1 and abs(size.gb - together) <= _ROUNDED * together
        i = max(size.gpu, 0)
        gpu, alone = cards[i], len(cards) == 1
        if size.gb % 1 and not fits(gpu, size.gb) and fits(gpu, size.gb / _THOUSANDS):
            size.gb = min(sizes_of(gpu), key=lambda gb: abs(gb - size.gb / _THOUSANDS))
        if alone and n_cards == 1 and any(row.unified for row in gpu_rows(gpu.name)):
            cards[i] = msgspec.structs.replace(gpu, vram_gib=size.gb)
            self.aside = size
            return
        if size.total and sums:
            return
        if size.in_use and not (sums or size.gb == usual(gpu)):
            raise unreadable(f"{size.text} VRAM", "is it what is used, or all that the card has?")
        if (not size.total or n_cards == 1) and fits(gpu, size.gb) and (gpu.vram_gib in (None, size.gb)):
            cards[i] = msgspec.structs.replace(gpu, vram_gib=size.gb)
        elif gpu.count > 1 and alone and not size.each and fits(gpu, size.gb / gpu.count):
            if len(sizes_of(gpu)) > 1:
                cards[i] = msgspec.structs.replace(gpu, vram_gib=size.gb / gpu.count)
        elif size.behind and (mobile := as_laptops(cards, size.gb)):
            cards[i] = mobile
            self.notes.append(f"{gpu.name} {size.text}: taken as a laptop's, which alone has that")
        elif not sums:
            if not gpu_rows(gpu.name):
                raise unreadable(
                    f"{size.text} VRAM",
                    f"how much does each have? Write it after the name, as in `{gpu.name} [24 GiB]`",
                )
            names = " + ".join(f"{card.count}x {card.name}" for card in cards)
            raise unreadable(f"{size.text} VRAM", f"{names} have {together:g} GB together: which is right?")

    def _settle_ram(self, cards: list[Gpu]) -> None:
        if self.maybe_cores and not self.sizes:
            self.sizes.append(Size(gb=float(self.maybe_cores), role="ram", text=self.maybe_cores, at=0, end=0))
            self.notes.append(f"{self.maybe_cores}: taken as GB of memory, not as the number of GPU cores")
        self._settle_wsl()
        stated = [s for s in self.sizes if s.role == "ram"]
        bare = [s for s in self.sizes if s.role == "bare"]
        of_mac = [s for s in (*stated, *bare) if self.sold and s.gb in self.sold[1]]
        for size in bare:
            if size.total and len(cards) == 1 and fits(cards[0], size.gb):
                continue
            if len(of_mac) == 1 and size not in of_mac and size.gb >= _SSD_GB:
                self.notes.append(f"{size.text}: taken as the drive's")
                continue
            together = sum((card.vram_gib or usual(card)) * card.count for card in cards)
            has_sizes = bool(stated) or len({s.gb for s in bare}) > 1 or any(card.vram_gib for card in cards)
            if size.total and has_sizes and len(cards) and abs(size.gb - together) <= _ROUNDED * together:
                continue
            if stated and size.gb >= _DISK_GB and size.gb != stated[0].gb:
                self.notes.append(f"{size.text}: no part of the memory, as the RAM is stated")
            else:
                is_usual = size.gb in _USUAL_RAM or self._is_displayed(size.gb, cards)
                if size.gb < 16_384 and not is_usual and not self._is_behind_type(size, cards):
                    raise unreadable(size.text, f"is it the RAM? Then write `{size.gb:g}GB RAM`")
                stated.append(size)
        if self.aside:  # `128GB, of which 64GB to RAM and 64GB to VRAM`
            wholes = [s.gb for s in stated]
            stated = [s for s in stated if s.gb + self.aside.gb not in wholes]
        if len({s.gb for s in stated}) > 1:
            said = " and ".join(f"{gb:g} GB" for gb in sorted({s.gb for s in stated}))
            raise unreadable(said, "two sizes of RAM: write one, the sum of all modules")
        self.total = stated[0].gb if stated else None
        if self.mts and self.in_mhz and self.mts < _CLOCKS.get(self.type or "", 0):
            self.notes.append(f"{self.mts} MHz: the clock, {2 * self.mts} MT/s")
            self.mts *= 2
        if self.sold and self.sold[1] and self.total and self.total not in self.sold[1]:
            sold = " or ".join(map(str, self.sold[1]))
            raise unreadable(f"{self.sold[0]} {self.total:g}GB", f"it is sold with {sold} GB: which is right?")
        gpu = cards[0] if len(cards) == 1 else None
        is_limit = self.aside is not None and self.aside.limit
        if gpu and self.total and gpu.vram_gib and is_shared(gpu.name) and not is_limit:
            whole = self.total + gpu.vram_gib
            if gpu.vram_gib >= self.total and whole in INSTALLED:  # `64GB RAM, 64GB VRAM`
                self.notes.append(f"{self.total:g} GB and {gpu.vram_gib:g} GB of VRAM: together the machine's memory")
                self.total = whole
        least = (self.total or _LEAST_RAM) / _TWO  # Linux and Windows give a half besides
        if self.aside and self.aside.gb <= least and not is_limit:
            self.notes.append(f"{self.aside.text}: set aside by the firmware, which is no limit")
            cards[0] = msgspec.structs.replace(cards[0], vram_gib=None)
        questions.ask_whose(self.text, stated, cards)

    def _settle_wsl(self) -> None:
        """Take what WSL has for the RAM: all of it is there for Linux, and more is not."""
        for own in [s for s in self.sizes if s.role == "wsl"]:
            others = [s for s in self.sizes if s.role in ("ram", "bare") and s.gb >= own.gb]
            self.notes += [f"{s.text}: the machine's, of which WSL has {own.text}" for s in others]
            self.sizes = [s for s in self.sizes if s not in others]
            own.role, self.free = "ram", self.free or own.gb

    @staticmethod
    def _is_displayed(gb: float, cards: Sequence[Gpu]) -> bool:
        """Return whether a system displays that of the memory installed: 31.2 of 32 GB."""
        is_part = any(_SHOWN * whole <= gb < whole for whole in INSTALLED)
        return gb != int(gb) and is_part and not any(fits(card, gb) for card in cards)

    def _is_behind_type(self, size: Size, cards: Sequence[Gpu]) -> bool:
        """Return whether a size that no card has is right behind the RAM's kind: `12x DDR5 8800 1.1TB`."""
        is_behind = lex.BEHIND_TYPE.search(self.text, max(0, size.at - 30), size.at) is not None
        return is_behind and size.gb > max(map(most, cards), default=0)

    def ram(self) -> Ram | None:
        """Return what was said about the machine's memory, None if nothing.

        Raises InvalidHardware for what is used of a total that was not stated.
        """
        if self.used is not None and self.free is None:
            if self.used >= (self.total or 0):
                raise unreadable(f"{self.used:g} GB used", "of how much? Write it as `256GB RAM (131GB free)`")
            self.free = (self.total or 0) - self.used
        ram = Ram(
            total_gb=self.total,
            free_gb=self.free,
            type=self.type,
            channels=self.channels,
            mts=self.mts,
            measured_bandwidth_gbs=self.measured,
        )
        return None if ram == Ram() else ram


def _of_something_else(before: str, behind: str, gb: float, owner: str, *, is_cards: bool) -> str:
    """Return why a size is no memory of the machine; "" if it may be some."""
    if lex.OF_DRIVE.search(before) and not lex.ROLE_RAM.match(behind):
        return "of a drive"
    is_models = not is_cards and lex.OF_MODEL.match(behind)
    if lex.NEEDED.search(before) or lex.OR_LESS.match(behind) or is_models or not gb:
        return "what something needs, not what the machine has"
    return "HBM of the processor, used for no figure" if owner == "cpu" and lex.HBM.match(behind) else ""


def _is_of_card(before: str, behind: str, gb: float) -> bool:
    """Return whether a size apart from a card is the card's: `3090, (24 GB each)`, `| GTX 750 Ti | 2 GB |`."""
    is_cell = before.rstrip().endswith("|") and gb not in INSTALLED
    return is_cell or lex.EACH.match(behind) is not None
