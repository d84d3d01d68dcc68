"""YAML that strangers paste: read only if it is neither nested nor repeated without end."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

_DEEPEST = 64
_FREE, _TIMES = 10_000, 20  # characters that aliases may add to any text, and how often they may repeat all of it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Other than YAMLError: what PyYAML's constructors raise for `2020-99-99`, `!!int ""`, `!!bool x`, `!!timestamp x`.
_NOT_READ = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError)


def read_yaml(text: str) -> object:
    """Return what a text in YAML holds, which may be indented as a whole; None where it is not YAML or not bounded."""
    text = textwrap.dedent(text)
    try:
        return yaml.load(text, _LOADER) if _is_bounded(text) else None  # noqa: S506 - CSafeLoader
    except _NOT_READ:
        return None


def at(value: object, *keys: str) -> Any:
    """Return what mappings in one another hold under these keys; None where one is missing, or is no mapping."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def entries(value: object) -> list[tuple[str, dict[str, Any]]]:
    """Return the parts of a mapping that are mappings."""
    found = value if isinstance(value, dict) else {}
    return [(str(name), entry) for name, entry in found.items() if isinstance(entry, dict)]


def listed(value: object) -> list[Any]:
    """Return a list; of anything else, none."""
    return value if isinstance(value, list) else []


def _is_bounded(text: str) -> bool:
    """Whether a text is not too long with each alias (`*name`) replaced by what it stands for, not too deep, and in no
    part inside itself. libyaml ends the process where brackets nest 65,000 deep."""
    sizes: dict[str, int] = {}
    most = _FREE + _TIMES * len(text)
    opened: list[tuple[str | None, int]] = [(None, 0)]  # anchors, and the length inside so far
    for event in yaml.parse(text, _LOADER):
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.pop(anchor or "", None)
            opened.append((anchor, 1))
            if len(opened) > _DEEPEST:
                return False
            continue
        if isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                return False
            anchor, n = None, sizes[anchor or ""]
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, n = opened.pop()
        elif isinstance(event, yaml.ScalarEvent):
            n = len(event.value) + 1
        else:
            continue
        if anchor is not None:
            sizes[anchor] = n
        opened[-1] = opened[-1][0], opened[-1][1] + n
        if opened[-1][1] > most:
            return False
    return True
