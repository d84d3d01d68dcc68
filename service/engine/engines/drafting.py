"""How commands ask for drafting, as either engine and its older builds spell it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

_NEXT_TOKENS = ("-mtp", "--multi-token-prediction")
_ENTRIES = ("--spec-type", "--spec-stage")
# keys of an entry of ik_llama.cpp's --spec-type, by the option that was before (common/common.cpp:1572-1685)
_KEYS = {
    "--draft": "n_max", "--draft-max": "n_max", "--draft-n": "n_max", "--draft-min": "n_min", "--draft-n-min": "n_min",
    "--draft-p-min": "p_min", "--spec-ngram-size-n": "ngram_size_n", "--spec-ngram-size-m": "ngram_size_m",
    "--spec-ngram-min-hits": "ngram_min_hits", "--suffix-pattern-len": "suffix_min_match_len",
    "--suffix-max-depth": "suffix_max_depth", "--suffix-corpus": "suffix_corpus",
}  # fmt: skip


class Drafting(NamedTuple):
    """`kinds` that are asked for, `keys` of their entries, `older`: keys that options of older builds set.

    `switches`: older words for a kind; `options`: those for a key.
    """

    kinds: tuple[str, ...]
    keys: dict[str, str]
    older: dict[str, str]
    switches: tuple[str, ...]
    options: tuple[str, ...]


def drafting_asked(words: Sequence[str]) -> Drafting | None:
    """Return what the options of a command ask for; None where values are quoted, which is not read."""
    kinds, switches = list[str](), list[str]()
    keys, older, options = dict[str, str](), dict[str, str](), list[str]()
    for name, value in zip_longest(words, words[1:], fillvalue=""):
        if name in _NEXT_TOKENS:
            kinds.append("mtp")
            switches.append(name)
        elif name in _ENTRIES:
            kind, colon, entry = value.partition(":")
            kinds += [kind] if colon else value.split(",")
            pairs = [pair.partition("=")[::2] for pair in entry.split(",") if pair]
            keys.update(pairs)
            switches += [name] if name != _ENTRIES[0] else []
        elif name in _KEYS:
            older[_KEYS[name]] = value
            options.append(name)
    if any(mark in value for value in (*keys.values(), *older.values()) for mark in "'\", "):
        return None
    found = tuple(kind for kind in dict.fromkeys(kinds) if kind not in ("", "none"))
    return Drafting(found, keys, older, tuple(switches), tuple(options))
