"""The types of `/v1/dumps`: nightly files with all results."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.measured.roofline import Prediction
from service.wire.results.results import Result

SCHEMA_VERSION = 1
"""Of the files: raised when a field or column is removed or changes its meaning, not when one is added."""
LICENCE = "CC-BY-4.0"
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"
DumpFormat: TypeAlias = Literal["jsonl", "csv"]


class DumpedResult(Result, frozen=True, kw_only=True):
    """A line of a JSONL dump: a result with its prediction.

    `owner`: the contributor, if the account is older than 14 days or an operator vouches for it; all others count as
    one.
    """

    prediction: Prediction | None = None
    owner: str | None = None


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One gzip file with `n_results` results; `sha256` is of the compressed file.

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
    """The available files, newest first. Results published elsewhere or imported are not in them.

    `key`: the Ed25519 key (Base64) that signs them, which identifies this service's dumps.
    """

    schema_version: int = SCHEMA_VERSION
    licence: str = LICENCE
    licence_url: str = LICENCE_URL
    key: str | None = None
    dumps: list[Dump] = []
