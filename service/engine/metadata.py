"""Typed access to a header's `<architecture>.*` metadata."""

from __future__ import annotations

import math

from service.engine.errors import UnsupportedModel
from service.engine.gguf.header import Header, MetadataValue


class MetadataReader:
    """The values of one header. Raises UnsupportedModel when it names no architecture."""

    def __init__(self, header: Header) -> None:
        arch = header.metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise UnsupportedModel("the header has no general.architecture: it is not a language model")
        self.arch, self.metadata = arch, header.metadata

    def get(self, key: str) -> MetadataValue | None:
        """Return `<architecture>.<key>` as it is, or None."""
        return self.metadata.get(f"{self.arch}.{key}")

    def require(self, key: str) -> int:
        """Return a number above zero. Raises UnsupportedModel."""
        value = as_int(self.get(key), 0)
        if value <= 0:
            raise UnsupportedModel(f"the header lacks {self.arch}.{key}, which every language model has")
        return value

    def optional(self, key: str, default: int = 0) -> int:
        """Return the number, or `default`."""
        return as_int(self.get(key), default)

    def per_layer(self, key: str, n_layer: int, default: int) -> list[int]:
        """Return one number a block: the list, its last value repeated, or the one value for all."""
        value = self.get(key)
        if isinstance(value, list):
            numbers = [as_int(v, default) for v in value][:n_layer]
            return numbers + [numbers[-1] if numbers else default] * (n_layer - len(numbers))
        return [as_int(value, default)] * n_layer


def as_int(value: MetadataValue | None, default: int) -> int:
    """Return the number, the first of a list, or `default` when absent, infinite or not a number."""
    if isinstance(value, list):
        value = value[0] if value else None
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else default
