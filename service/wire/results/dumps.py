"""The shapes of `/v1/dumps`: files with all results, made each night."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.measured.roofline import Prediction
from service.wire.results.results import Result

SCHEMA_VERSION = 1
"""Of the files: it grows when a field or column changes its meaning or goes; new ones may come without."""
LICENCE = "CC-BY-4.0"
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"
DumpFormat: TypeAlias = Literal["jsonl", "csv"]


class DumpedResult(Result, frozen=True, kw_only=True):
    """A line of a JSONL dump: a result with what was predicted of it.

    `owner`: the contributor, where the account is older than 14 days or an operator vouches for it; all others count
    as one.
    """

    prediction: Prediction | None = None
    owner: str | None = None


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One file, compressed by gzip. `n_results` are in it; `sha256` is of the file as it is sent.

    `signature`: Ed25519 (Base64) of the UTF-8 text `offload-advisor dump\\n<name>\\n<made_at>\\n<sha256>\\n`.
    """

    name: str
    format: DumpFormat
    made_at: str
    n_results: int
    n_bytes: int
    sha256: str
    signature: str | None = None
    url: str | None = None


class DumpList(msgspec.Struct, frozen=True, kw_only=True):
    """The files that can be had, the newest first. Results published elsewhere or imported are not in them.

    `key`: the Ed25519 key (Base64) that signs them, by which others tell this service's dumps from any other's.
    """

    schema_version: int = SCHEMA_VERSION
    licence: str = LICENCE
    licence_url: str = LICENCE_URL
    key: str | None = None
    dumps: list[Dump] = []
