"""Other ways to write the same hardware: separators, order, case, units and the prose around it."""

from __future__ import annotations

import random
import re

_LIST = re.compile(r",\s+|\s+\+\s+|\n+")
_PROSE = ("I have {}", "My rig: {}", "Hi, my setup is {}. Thanks!", "{} here", "running on {}", "Specs:\n{}", "- {}")


def mutated(text: str, draw: random.Random) -> str:
    """Return `text` written in another way that means the same."""
    for _ in range(draw.randint(1, 3)):
        text = draw.choice((_separated, _ordered, _cased, _spaced, _in_prose))(text, draw)
    return text


def _parts(text: str) -> list[str]:
    """The parts of a plain list; one where brackets, totals or sentences tie them together."""
    tied = re.search(r"[()\[\]]|\b(?:total|so|giving|which|each|vram|x\d+/)\b|\.\s|:|@|\bat\b", text, re.I)
    return [text] if tied else [part.strip() for part in _LIST.split(text) if part.strip()]


def _separated(text: str, draw: random.Random) -> str:
    return draw.choice((", ", " + ", "\n", "; ", ",\n", " and ")).join(_parts(text))


def _ordered(text: str, draw: random.Random) -> str:
    parts = _parts(text)
    sizes = [part for part in parts if re.fullmatch(r"\S+\s?(?:gb?|tb)", part, re.I)]
    if len(sizes) > 1 or (sizes and len(parts) < 3):  # a size belongs to what stands before it
        return text
    draw.shuffle(parts)
    return ", ".join(parts)


def _cased(text: str, draw: random.Random) -> str:
    if re.search(r"\d\ds\b", text, re.I):  # `2070s` are several, `2070S` is another card
        return text
    return draw.choice((text.lower(), text.upper()))


def _spaced(text: str, draw: random.Random) -> str:
    return draw.choice(
        (
            re.sub(r"(?<=\d)(?=gb\b)", " ", text, flags=re.I),
            re.sub(r"(?<=\d)\s(?=gb?\b)", "", text, flags=re.I),
            re.sub(r"\b(\d)x\s?(?=[a-z]|\d{4})", r"\1 x ", text, flags=re.I),
            text.replace(" ", "  "),
        )
    )


def _in_prose(text: str, draw: random.Random) -> str:
    return draw.choice(_PROSE).format(text)
