"""The shapes of `/v1/dumps`: files with all results, made each night."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

SCHEMA_VERSION = 1
"""Of the files: it grows when a field or column changes its meaning or goes; new ones may come without."""
LICENCE = "CC-BY-4.0"
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"
DumpFormat: TypeAlias = Literal["jsonl", "csv"]


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One file, compressed by gzip. `n_results` are in it; `sha256` is of the file as it is sent."""

    name: str
    format: DumpFormat
    made_at: str
    n_results: int
    n_bytes: int
    sha256: str
    url: str | None = None


class DumpList(msgspec.Struct, frozen=True, kw_only=True):
    """The files that can be had, the newest first. Results published elsewhere are not in them."""

    schema_version: int = SCHEMA_VERSION
    licence: str = LICENCE
    licence_url: str = LICENCE_URL
    dumps: list[Dump] = []
