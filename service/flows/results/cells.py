"""Cells: two measurements are of the same thing if and only if they are in one cell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from service.engine.config import CPU
from service.engine.errors import InvalidFlags
from service.engine.measured.chosen import Measurement
from service.hub.listing import RepoListing
from service.wire.measuring.agent import RunFile


def cell_of(one: Measurement, files: Sequence[RunFile]) -> str:
    """Return the hash of everything that decides what is measured: how many logits are kept does not."""
    cards = [device.gpu for device in one.devices if device.device != CPU]
    flags = msgspec.structs.replace(one.flags, n_logits=msgspec.UNSET)
    parts = (one.engine, [file.sha256 for file in files], flags, cards)
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def files_of(listing: RepoListing, variant: str) -> tuple[RunFile, ...]:
    """Return a variant's files as a host must have them. Raises InvalidFlags if the Hub does not state their hashes."""
    found = next((one for one in listing.variants if one.name == variant), None)
    files = found.files if found else ()
    if not files or any(file.sha256 is None or not file.n_bytes for file in files):
        raise InvalidFlags(
            "the Hub does not state size and hash of its files: no host could identify them", field="configs"
        )
    made = [{"path": file.path, "size": file.n_bytes, "sha256": file.sha256} for file in files]
    try:
        return msgspec.convert(tuple(made), tuple[RunFile, ...])
    except msgspec.ValidationError as error:
        raise InvalidFlags(f"a host may not be asked for a file of this name: {error}", field="configs") from error
