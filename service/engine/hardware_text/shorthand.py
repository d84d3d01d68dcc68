"""Reads hardware in words, in any order: `2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8`, or the same in prose.

Everything in a text becomes a fact about a part, a note that is handed back (`hardware.notes`), or a question. A name
missing from the catalogue is quoted: `gpu "Name" [24 GiB]`. A card's details follow it, or are in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import cpu_row, gpu_rows
from service.engine.errors import InvalidHardware
from service.engine.hardware import Backend, Cpu, Gpu
from service.engine.hardware_text import lexicon as lex
from service.engine.hardware_text import questions
from service.engine.hardware_text.asides import ask_about_negative, without_asides
from service.engine.hardware_text.card_details import CardDetails
from service.engine.hardware_text.cards import NAMED, laptops_cpu, taken_for_laptops
from service.engine.hardware_text.details import HOW_TO_LINK, details, linked
from service.engine.hardware_text.foreign_json import in_words
from service.engine.hardware_text.found import Claim, Found, is_shared, unreadable
from service.engine.hardware_text.instances import as_rented, service_of, without_hosts, without_instances
from service.engine.hardware_text.mentions import Mention, mentions_of
from service.engine.hardware_text.parts import (
    are_threads,
    counted,
    counts_nodes,
    is_of_other_device,
    nodes_of,
    numbered,
    one_cpu,
    own_gpus,
    says_of_graphics,
    sockets_by_nodes,
    sockets_by_threads,
    sold_with,
    taken_unasked,
    without_displays,
    without_own,
)
from service.engine.hardware_text.spelling import plain

MAX_PARTS = 100
_MOST_MENTIONS = 1_000
_MOST_CARDS = 20  # of one kind, if the count comes after the name
_MOST_PROSE = 20_000
_BACKENDS = {"hip": "rocm", "radv": "vulkan"}  # other words for a back end


def read_shorthand(lines: Sequence[str]) -> Claim | None:
    """Return what the remaining lines say. Raises InvalidHardware for what is unreadable or ambiguous."""
    words, rented = without_instances(in_words("\n".join(lines)))
    words, hosts = without_hosts(words)
    kept, asides = without_asides(words.split("\n"))
    text = plain("\n".join(kept))
    if len(rented) > 1:
        raise unreadable(" / ".join(rented), f"several machines: {questions.MACHINE}")
    if not (text.strip() or rented or asides):
        return None
    found = _read(text, asides) if text.strip() else Found()
    if rented:
        found = as_rented(found, _read(rented[0]))
    elif given := service_of(text, found):
        machine, gib = given
        gpus = tuple(msgspec.structs.replace(gpu, vram_gib=gpu.vram_gib or gib) for gpu in found.gpus)
        hosts.append(f"{machine}: taken as what the service gives with this card, as nothing else is stated")
        found = as_rented(found, msgspec.structs.replace(_read(machine), gpus=gpus))
    notes = "; ".join((*filter(None, (found.notes,)), *hosts, *asides)) or None
    return Claim(msgspec.structs.replace(found, notes=notes), frozenset(range(len(lines))))


def _read(text: str, asides: Sequence[str] = ()) -> Found:
    """Return what a text that went through `plain` says. `asides`: lines of it that are not of hardware."""
    if len(text) > _MOST_PROSE:
        said = f"{len(text)} characters of free text are too many, at most {_MOST_PROSE}"
        raise InvalidHardware(f"{said}: leave out what is not hardware", field="hardware")
    ask_about_negative(text)
    mentions = list(mentions_of(text, _MOST_MENTIONS + 1))
    if len(mentions) > _MOST_MENTIONS or sum(m.kind in ("gpu", "cpu", "size", "quoted") for m in mentions) > MAX_PARTS:
        raise InvalidHardware(f"{len(mentions)} pieces are too many, at most {MAX_PARTS}", field="hardware")
    return _Reading(text, mentions, says_of_graphics("\n".join((text, *asides)))).found()


class _Reading(CardDetails):
    """The state of reading one text: what the mentions so far have said. `own_graphics`: as `says_of_graphics`."""

    def __init__(self, text: str, mentions: Sequence[Mention], own_graphics: bool | None) -> None:
        super().__init__(text, mentions)
        self.own_graphics = own_graphics
        self.cpus: list[Cpu] = []
        self.no_gpu = self.no_card = self.has_mac = False
        self.os: str | None = None
        self.backend: Backend | None = None
        self.laptops: set[int] = set()
        self.is_laptop = False
        self.laptop_name: str | None = None
        self.sockets: int | None = None  # of the CPU named next
        self.of_cpu: set[str] = set()  # GPUs within a processor's name: `8845HS w/ Radeon 780M`
        self.all_cards: list[tuple[int, bool]] = []  # stated counts of cards; whether of the card just named

    def found(self) -> Found:
        """Return what all mentions together say."""
        questions.ask_about_limits(self.text)
        questions.ask_about_plans(self.text, self.mentions)
        for i, mention in sorted(enumerate(self.mentions), key=lambda m: m[1].is_of_gpu_cores):
            self._read(mention, i)
        if self.waiting is not None:
            if self.waiting.kind == "link":
                raise unreadable(self.waiting.text, HOW_TO_LINK)
            self.notes.append(self.waiting.text)
        self.gpus = counted(self.gpus, self.all_cards, self.text)
        self._count_nodes()
        cpu = one_cpu(self.cpus, is_exact=any(m.kind == "quoted" and m.hit[2].lower() == "cpu" for m in self.mentions))
        if said := [c.physical_cores for c in self.cpus if cpu and (c.physical_cores or 0) > (cpu.physical_cores or 0)]:
            self.notes.append(f"{said[0]} cores: taken as threads")
        own = own_gpus(cpu, is_used=not self.gpus if self.own_graphics is None else self.own_graphics)
        self._settle_laptops()
        kept, left_out = without_own(self.gpus, self.of_cpu, own)
        self.memory.keep([i for i, gpu in enumerate(self.gpus) if gpu in kept])
        self.gpus = kept
        self.notes += left_out
        self.gpus = numbered(self.gpus)
        questions.ask_about_boards(self.gpus, self.quoted, self.text)
        cards = self.memory.settle(self.gpus or own, is_mac=self.os == "macos")
        self.gpus, own = (cards, own) if self.gpus else ([], tuple(cards))
        self.gpus, left_out = without_displays(self.gpus, self.for_display)
        if re.search(r"(?<!not )(?<!non-)\bheadless\b", self.text, re.I):
            self.gpus = [msgspec.structs.replace(g, display=bool(g.display)) for g in self.gpus]
        self.notes += left_out
        self.notes += self.memory.notes
        questions.ask_about_unknown(self.gpus, self.quoted)
        if self.has_mac and self.os != "macos" and not questions.are_of_macs(self.gpus):
            raise unreadable(self._mac_text(), f"several machines? {questions.MACHINE.capitalize()}")
        if self.has_mac and not self.gpus and cpu is None:
            raise unreadable(self._mac_text(), "which chip has that? Write `M3 Ultra 512GB`")
        named = self.gpus or own
        self.no_gpu = self.no_gpu or (self.no_card and not (named and all(is_shared(gpu.name) for gpu in named)))
        gpus = tuple(self.gpus) if self.gpus or self.no_gpu else own
        if gpus is own and self.own_graphics is None:
            self.notes += taken_unasked(own, cpu)
        return Found(
            gpus=gpus,
            come_with_cpu=all(gpu.name in self.of_cpu for gpu in self.gpus),
            no_gpu=self.no_gpu,
            cpu=cpu,
            ram=self.memory.ram(),
            os=self.os,
            backend=self.backend,
            notes="; ".join(dict.fromkeys(self.notes)) or None,
        )

    def _read(self, m: Mention, i: int) -> None:
        reader = getattr(self, f"_read_{m.kind}", None)
        if reader is not None:
            reader(m, self.mentions[i - 1] if i else None) if m.kind == "gpu" else reader(m)
        else:
            self._note(m, i)

    def _note(self, m: Mention, i: int) -> None:
        """Keep a word that names no part, together with its neighbours, as a note; ask if it may be a part."""
        before = self.mentions[i - 1] if i else None
        if before and before.kind == "apple" and m.gap == "" and self.memory.is_of_mac(m.text):
            return
        if counts_nodes(m.text) and self.cpus:
            return
        if m.kind == "word":
            questions.ask_about_word(m, i, self.mentions)
        elif named := lex.LAPTOP_NAME.match(m.text):
            self.laptop_name = named[0]
        elif self.owner == "cpu":
            self._count_threads(m.text)
        if before and before.kind == m.kind == "word" and self.notes and self.text[before.end : m.at] in ("", " "):
            self.notes[-1] += f" {m.text}"
        else:
            self.notes.append(m.text.strip(" ()@"))

    def _is_rate_of_ram(self, m: Mention) -> bool:
        """Take a number after RAM that is its rate, although also the name of a card or CPU. Return whether it was."""
        is_rate = self.owner == "ram" and m.gap in ("", "with") and self.memory.is_rate(m.name)
        if is_rate:
            self.memory.rate(m.name)
        return is_rate

    def _read_gpu(self, m: Mention, before: Mention | None = None) -> None:
        if self._is_rate_of_ram(m):
            return
        if m.count == 0:
            raise unreadable(m.text, "leave out what is not there, or write how many of them there are")
        if not self._are_again(m):
            questions.ask_about_plural(m, [n for n, _ in self.all_cards])
        name = re.sub(r"\s*\b(?:gpus?|cards?)$", "", m.name, flags=re.I).strip() or m.name
        if re.fullmatch(r"xtx 7\d00", name.removeprefix("Radeon ").lower()):
            name = f"RX {name.split()[-1]} XTX"
        inside = re.search(rf"(?<![a-z]){lex.SIZE.pattern}", name, re.I)  # `A100 80GB PCIe`, but `A10G`
        if lex.SLICE.search(name):  # of a slice, which its name tells
            name, inside = re.sub(r"[()]", "", name), None
        name = f"{name[: inside.start()].strip(' -(')} {name[inside.end() :].strip()}" if inside else name
        gpu = Gpu(name=name.strip("() "), count=m.count or 1)
        self.owner, self.current = "gpu", -1
        numbered = msgspec.structs.replace(gpu, vram_gib=lex.gigabytes(inside) if inside else None)
        if self._number(numbered) or self._named_again(m, gpu):
            return
        if before is not None and before.kind == "cpu" and m.gap == "with" and is_shared(gpu.name):
            self.of_cpu.add(gpu.name)
        self.gpus.append(gpu)
        if size := m.size or inside:
            self.memory.behind_gpu(lex.gigabytes(size), len(self.gpus) - 1, size[0].strip())
        else:
            self.memory.take_before(m, self.gpus, self.current)
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            if waiting.kind == "link":
                self.gpus = linked(self.gpus, waiting.text, [len(self.gpus) - 1])
            else:
                self._read_switch(waiting)

    def _read_cards(self, m: Mention) -> None:
        word = (m.hit[1] or m.hit[2]).lower()
        n = int(word) if word.isdigit() else lex.NUMBERS[re.sub(r"\s+", " ", word)]
        if n == 0:  # `0 GPUs detected`
            self.notes.append(m.text)
            return
        self.all_cards.append((n, m.hit[2] is not None or self.owner == "gpu" or self.owner == "ram"))

    def _read_either(self, m: Mention) -> None:
        if self._is_rate_of_ram(m):
            return
        if m.count is None and not any(o.kind == "cpu" and not lex.RATE.fullmatch(o.name) for o in self.mentions):
            cpu = row.name if (row := cpu_row(m.name)) else lex.ALSO_CPUS[m.name]
            raise unreadable(m.text, f"it is a GPU and a CPU: write `{gpu_rows(m.name)[0].name}` or `{cpu}`")
        self._read_gpu(m)

    def _read_cpu(self, m: Mention) -> None:
        if self._is_rate_of_ram(m):
            return
        name = re.sub(r"\s*\b(?:cpus?|processors?)$", "", " ".join(m.name.split()), flags=re.I)
        name = re.sub(r"\b(xeon|epyc|threadripper)s\b|(?<=wx)s\b", r"\1", name, flags=re.I)
        name = re.sub(r"(?<=\d{4})s$", "", name) if (m.count or self.sockets or 1) > 1 else name  # `dual EPYC 7532s`
        stated, self.sockets = self.sockets, None
        self.cpus.append(Cpu(model=name, sockets=stated))
        self._count_cpu(m.count or 1, m.text)
        self.owner = "cpu"

    def _count_cpu(self, n: int, text: str) -> None:
        if are_threads(self.cpus[-1].model, n, text):
            self.notes.append(f"{n} threads")
        elif n > 1:
            self.cpus[-1] = msgspec.structs.replace(self.cpus[-1], sockets=n)

    def _read_quoted(self, m: Mention) -> None:
        count, kind, name, inner, rest = m.hit.groups()
        if kind.lower() == "gpu":
            self.quoted.add(name)
            self.gpus.append(details(inner, Gpu(name=name, count=int(count or 1))))
            self.owner = "gpu"
            return
        sockets, cores = re.search(r"(\d+) sockets?", rest), re.search(r"(\d+) cores?", rest)
        n = int(sockets[1]) if sockets else int(count) if count else None
        self.cpus.append(Cpu(model=name, sockets=n, physical_cores=int(cores[1]) if cores else None))
        self.owner = "cpu"

    def _read_nameless(self, m: Mention) -> None:
        sockets, cores = m.hit.groups()
        self.cpus.append(Cpu(sockets=int(sockets) if sockets else None, physical_cores=int(cores) if cores else None))
        self.owner = "cpu"

    def _read_ram_word(self, m: Mention) -> None:
        self.owner = "ram"

    def _read_apple(self, m: Mention) -> None:
        kind = (m.hit[2] or "").lower()
        chip = f"Apple M{m.hit[1]}{' ' + kind.title() if kind else ''}"
        if kind and self.gpus and self.gpus[-1].name == f"Apple M{m.hit[1]}":  # `Apple M3 chip: M3 Max`
            del self.gpus[-1], self.cpus[-1]
        known = any(gpu.name.startswith(chip) for gpu in self.gpus)
        again, self.numbers = known and self.numbers, []  # `Device 1: Mac Studio M3 Ultra`, and a second one
        if again or (m.count or 1) > 1 or (self.gpus and self.gpus[-1].name.split(" GPU")[0] not in chip and not known):
            raise unreadable(m.text, f"several machines: {questions.MACHINE}")
        if known:
            return
        gpu = f"{chip} {m.hit[3]}-core GPU" if m.hit[3] else chip
        self.gpus.append(Gpu(name=gpu if gpu_rows(gpu) else chip))
        self.cpus.append(Cpu(model=chip))
        self.owner, self.os = "ram", "macos"
        self.memory.sold = (chip, sold_with(kind, int(m.hit[1])))

    def _read_numbers(self, m: Mention) -> None:
        self.numbers = [int(n) for n in re.findall(r"\d+", next(group for group in m.hit.groups() if group))]

    def _read_mac(self, m: Mention) -> None:
        is_size = re.match(r"1[3-8][\s-]?inch", m.text, re.I) is not None
        self.has_mac, self.is_laptop = self.has_mac or not is_size, self.is_laptop or is_size

    def _mac_text(self) -> str:
        return " ".join(m.text for m in self.mentions if m.kind in ("mac", "size"))

    def _read_modules(self, m: Mention) -> None:
        times = self._times(m)
        if m.hit[7] and self.owner == "gpu" and m.gap != ",":
            raise unreadable(m.text, f"of what? Write RAM as `{m.hit[7]}x{m.hit[8]}GB`, with a comma before it")
        self.owner = self.memory.modules(m, self.owner, self.gpus, self.current, times)

    def _read_memory(self, m: Mention) -> None:
        self.memory.kind(m)
        self.owner = "ram"

    def _read_speed(self, m: Mention) -> None:
        value = m.hit[1] or m.hit[2]
        if lex.RATE.fullmatch(value) or self.owner == "ram":
            self.memory.rate(value, m.text)
        else:
            self.notes.append(m.text)

    def _read_rate(self, m: Mention) -> None:
        if self.owner == "ram" or re.match(r"\s(?:memory|ram)\b", self.text[m.end : m.end + 8], re.I):
            self.memory.rate(m.text)
        else:
            questions.ask_about_word(m, 0, self.mentions)
            self.notes.append(m.text)

    def _read_channels(self, m: Mention) -> None:
        word = next(group for group in m.hit.groups() if group)
        self.memory.channels = int(word) if word.isdigit() else lex.CHANNEL_WORDS[word.lower()]
        self.owner = "ram"

    def _read_size(self, m: Mention) -> None:
        times = self._times(m)
        if is_of_other_device(m, self.mentions) and lex.EACH.match(self.text, m.end):  # `2x SATA SSDs, 256 GB each`
            self.notes.append(m.text)
        else:
            self.owner = self.memory.size(m, self.owner, self.gpus, self.current, times)

    def _n_sockets(self) -> int | None:
        return next((cpu.sockets for cpu in self.cpus if cpu.sockets), self.sockets)

    def _times(self, m: Mention) -> int:
        """Return how often the machine has a size of RAM: once a socket, if it is said to be of each."""
        times = questions.times_sockets(m, self.text, self._n_sockets())
        self.notes += [f"{m.text} per socket: taken as that of {times}"] if times > 1 else []
        return times

    def _read_range(self, m: Mention) -> None:
        raise unreadable(m.text, "how much is it? Write one size")

    def _read_sockets(self, m: Mention) -> None:
        word = next(filter(None, m.hit.groups())).lower()
        n = int(word) if word.isdigit() else lex.NUMBERS[word]
        if not self.cpus:
            self.sockets = n
        elif self.cpus[-1].sockets in (None, n):
            self.cpus[-1] = msgspec.structs.replace(self.cpus[-1], sockets=n)
        else:
            raise unreadable(m.text, "how many sockets? There are two numbers")

    def _read_cores(self, m: Mention) -> None:
        if self.os == "macos" or m.is_of_gpu_cores:
            self._read_cores_of_mac(m)
            return
        threads = int(m.hit[4] or 0)
        cores = int(m.hit[1] or m.hit[3] or m.hit[5] or (threads + 1) // 2)
        if cores < 2 and not threads:  # `only 1 core is used`: no such processor is in use
            self.notes.append(m.text)
            return
        if threads:
            self.notes.append(f"{m.text}: a rented vCPU is taken as half a core")
        is_again = m.text.endswith(")") and not any(cpu.sockets for cpu in self.cpus)  # `8-Core Processor (16 cores)`
        if re.match(r"\s(?:each|apiece|per\s(?:cpu|socket|processor))\b", self.text[m.end :], re.I):
            cores *= self._n_sockets() or 1
        if any(cpu.physical_cores not in (None, cores, cores / (1 + is_again)) for cpu in self.cpus):
            raise unreadable(m.text, "how many cores does the CPU have? There are two numbers")
        self.cpus.append(Cpu(physical_cores=cores))
        self.owner = "cpu"
        self._count_threads(m.text)

    def _count_threads(self, text: str) -> None:
        """Take the sockets from `Xeon Gold 6154 (72 threads)`: one has 36."""
        said = re.search(r"(\d{2,4})[\s-]threads", text)
        model = next((cpu.model for cpu in reversed(self.cpus) if cpu.model), None)
        n = sockets_by_threads(model, int(said[1])) if said else None
        if said and n and all(cpu.sockets is None for cpu in self.cpus):
            self.cpus[-1] = msgspec.structs.replace(self.cpus[-1], sockets=n)
            self.notes.append(f"{said[1]} threads: taken as those of {n} sockets")

    def _count_nodes(self) -> None:
        """Take the NUMA nodes, and the sockets from `Xeon Gold 6248, 2 NUMA nodes` where nothing else says how many."""
        model = next((cpu.model for cpu in reversed(self.cpus) if cpu.model), None)
        if (n := sockets_by_nodes(model, self.text)) and all(cpu.sockets is None for cpu in self.cpus):
            self.cpus[-1] = msgspec.structs.replace(self.cpus[-1], sockets=n)
            self.notes.append(f"{n} NUMA nodes: taken as {n} sockets")
        if self.cpus and (nodes := nodes_of(self.text, next((cpu.sockets for cpu in self.cpus if cpu.sockets), 1))):
            self.cpus[-1] = msgspec.structs.replace(self.cpus[-1], numa_nodes=nodes)

    def _read_cores_of_mac(self, m: Mention) -> None:
        """Take the number of GPU cores where a chip is sold with fewer, too: `M1 Max, 32GB, 24 GPU cores`.

        So is `M1 Ultra Mac Studio (64 core)`, which are more cores than its CPU has.
        """
        chip, said = self.memory.sold[0] if self.memory.sold else "", m.hit[1] or m.hit[5] or "0"
        name, cpu = f"{chip} {said}-core GPU", cpu_row(chip)
        is_more = cpu is not None and int(said) > cpu.cores and "cpu" not in m.text.lower()
        if (m.is_of_gpu_cores or is_more) and gpu_rows(name):
            self.gpus[-1] = msgspec.structs.replace(self.gpus[-1], name=name)
        else:
            self.notes.append(m.text.strip("()"))

    def _read_count(self, m: Mention) -> None:
        n = int(m.hit[1] or m.hit[2] or m.hit[3])
        before = next((o for o in reversed(self.mentions) if o.kind == "gpu" and o.end <= m.at), None)
        counted_before = before and (before.count or lex.ORDINAL.search(self.text, max(0, before.at - 12), before.at))
        if self.owner == "gpu" and counted_before and m.hit[1] and n in (1, 4, 8, 16) and n != counted_before:
            self._link(m, [self.current % len(self.gpus)])  # `2x RTX 3090 x8`
        elif self.owner == "gpu" and self.gpus[self.current].count == 1 and n <= _MOST_CARDS:
            said = self.text[before.at : m.end] if before else m.text
            questions.ask_about_lanes(n, self.gpus[self.current].name, said, self.mentions)
            self.gpus[self.current] = msgspec.structs.replace(self.gpus[self.current], count=n)
        elif self.owner == "cpu" and self.cpus[-1].sockets in (None, n):
            self._count_cpu(n, m.text)
        elif self.owner == "ram" and self.memory.are_modules(n, m.at):
            pass
        elif self.owner == "ram" and self.memory.channels is None:
            self.memory.channels = n
        elif not (self.owner == "gpu" and self.gpus[self.current].count == n):
            raise unreadable(m.text, questions.OF_WHAT)

    def _read_some(self, m: Mention) -> None:
        questions.ask_about_some(m, self.text)

    def _read_no_gpu(self, m: Mention) -> None:
        if re.search(r"dedicated|discrete", m.text, re.I):
            self.no_card = True
        else:
            self.no_gpu = True

    def _read_os(self, m: Mention) -> None:
        if self.os is None or m.text.lower().startswith("wsl"):  # "Windows 11 with WSL" runs in WSL
            self.os = m.text.lower()

    def _read_backend(self, m: Mention) -> None:
        if re.search(r"\b(?:no|not|without|or|than)\s$", self.text[: m.at], re.I):
            self.notes.append(m.text)
        else:
            name = next(filter(None, m.hit.groups())).lower()
            self.backend = self.backend or msgspec.convert(_BACKENDS.get(name, name), Backend)

    def _read_laptop(self, m: Mention) -> None:
        if self.owner == "gpu" and m.gap in ("", "with"):
            self.laptops.add(self.current % len(self.gpus))
        else:
            self.is_laptop = True

    def _settle_laptops(self) -> None:
        """Name laptop GPUs as such: they share names with larger cards, which only external ones really are."""
        mobile = laptops_cpu(self.cpus) or (f"{self.laptop_name} is a laptop" if self.laptop_name else None)
        alone = sum(gpu.count for gpu in self.gpus if gpu.name not in self.of_cpu) == 1
        for i, gpu in enumerate(self.gpus):
            outside = gpu.pcie is not None or NAMED.search(gpu.name)
            of_laptop = msgspec.structs.replace(gpu, name=f"{gpu.name} laptop")
            by_cpu = mobile is not None and alone and not self.memory.is_of(i, gpu, not_of=of_laptop)
            said = i in self.laptops or self.is_laptop or not gpu_rows(gpu.name)  # no other RTX 4050 is sold
            if i in self.laptops and not outside and not gpu_rows(of_laptop.name):
                questions.ask_about_laptop(gpu, is_known=self.memory.has_size(i))
            if (said or by_cpu) and not outside and gpu_rows(of_laptop.name):
                self.gpus[i] = of_laptop
                if not said:
                    self.notes.append(taken_for_laptops(mobile, gpu))
