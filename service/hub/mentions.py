"""Finds a repo mentioned in a longer text: a download command, Python, a settings file, a path, a sentence.

Only an unambiguous mention counts: with several addresses or several `owner/name`, none is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

QUANTISATION = r"(?:(?:UD|i1|smol|mix|pure|imat)[-_])?(?:I?Q|TQ|DQ)[1-8]_\w+|BF16|FP16|F16|F32|MXFP4\w*|NVFP4"

_ADDRESS = re.compile(
    r"(?<![\w./:=?@-])(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com)/[^\s\"'<>()\[\]`]+", re.I
)
_LIBRARY = re.compile(r"(?<![\w./:=?@-])(?:hf|huggingface)://([^\s\"'<>()\[\]`]+)", re.I)
_BY_SSH = re.compile(r"git@(?:hf\.co|huggingface\.co):([^\s\"']+?)(?:\.git)?(?=[\s\"']|$)", re.I)
_BEHIND_AN_ADDRESS = ".,;:!?"
_NAMED = re.compile(
    r"(?<![\w./~\\:-])@?([A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,94}\w(?:[:@][A-Za-z0-9_][\w.+-]*\w)?)(?![\w/\\])",
    re.ASCII,
)
_SAID = re.compile(
    r"(?:(?<!\S)-hfr?|--hf-repo|--model|--repo|repo_?id|hf_?-?repo|model|repo|FROM|get|pull|run|download|from_pretrained)"
    r"[\s=:(\"'`@]*$",
    re.I,
)
_SPACED = re.compile(r"([\w.-]+)\s*[/\\]\s*([\w.:@-]+)")
_IN_STUDIO = re.compile(r"[/\\]models[/\\]([\w.-]+)[/\\]([\w.-]+)[/\\][^/\\\s]+\.gguf", re.I)
_IN_CACHE = re.compile(r"(?:^|[/\\\s])([A-Za-z0-9-]+)_([\w.-]+?-GGUF)_\S+\.gguf", re.I)
_OF_OTHERS = re.compile(  # options whose values look like a quantisation or a file of the repo
    r"(?<!\S)(?:-ct[kv]d?|--cache-type-[kv]\S*|-mm|--mmproj|-md|--model-draft|-a|--alias|-o|--local-dir)[\s=]+\S+", re.I
)
_LABEL = re.compile(rf"(?<![A-Za-z0-9])({QUANTISATION})(?![A-Za-z0-9_])", re.I)
_FILE = re.compile(r"(?:-hff|--hf-file|filename|file)[\s=:(\"'`]+([\w./-]+\.gguf)|\s([\w./-]+\.gguf)(?=\s|$)", re.I)


class Mention(msgspec.Struct, frozen=True):
    """The part of a text that names a repo; `file` and `variant` are named elsewhere in the text."""

    reference: str
    file: str | None = None
    variant: str | None = None


def mention_in(text: str) -> Mention | None:
    """Return the one repo that a text mentions, with the file or quantisation that it also names."""
    found = dict.fromkeys(_addresses(text)) or dict.fromkeys(_names(text))
    if len(found) != 1:
        return None
    reference = next(iter(found))
    rest = _OF_OTHERS.sub(" ", text.replace(reference, " "))
    files = {a or b for a, b in _FILE.findall(rest)}
    labels = {label.lower(): label for label in _LABEL.findall(rest)}
    return Mention(
        reference,
        next(iter(files)) if len(files) == 1 else None,
        next(iter(labels.values())) if len(labels) == 1 else None,
    )


def _addresses(text: str) -> Iterator[str]:
    for address in _ADDRESS.findall(text):
        yield address.rstrip(_BEHIND_AN_ADDRESS)
    for path in _LIBRARY.findall(text):
        yield f"hf://{path.rstrip(_BEHIND_AN_ADDRESS)}"
    yield from _BY_SSH.findall(text)


def _names(text: str) -> Iterator[str]:
    """Yield each `owner/name` that stands where a repo is expected, or whose name contains GGUF."""
    for found in (*_IN_STUDIO.finditer(text), *_IN_CACHE.finditer(text)):
        yield f"{found[1]}/{found[2]}"
        return
    if spaced := _SPACED.fullmatch(text):
        yield f"{spaced[1]}/{spaced[2]}"
        return
    for found in _NAMED.finditer(text):
        name, before = found[1], text[: found.start()]
        if name.lower().endswith(".gguf"):
            continue
        if "gguf" in name.lower() or _SAID.search(before) or before.strip(" \t\"'`(@") == "":
            yield name
