"""Nightly dumps: all public results, in files.

Published results are left out, as they are not ours to license, and so are results imported from another service, whose
own dumps have them. Lines are ordered by id. The files are signed with the service's key, in `dumps.key` next to their
folder, so that another service can import them (`flows.results.imports`).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path

import msgspec
from nacl.signing import SigningKey
from sqlalchemy import Engine

from service.errors import DumpNotFound
from service.flows.context import utc_now
from service.flows.results.read_results import as_result
from service.flows.results.trust import OLD_ENOUGH
from service.scratch import write_whole
from service.settings import Settings
from service.store.engines import PRIVATE_FILE
from service.store.results import listed_results, moderation
from service.structs import made_from
from service.wire.results.dumps import SCHEMA_VERSION, Dump, DumpedResult, DumpFormat, DumpList
from service.wire.results.results_table import COLUMNS, csv_head, csv_lines, table_rows

KEPT = 7  # nights
_BATCH = 500
_LIST, _KEY = "dumps.json", "dumps.key"


def folder_of(settings: Settings) -> Path:
    return settings.state_dir / "dumps"


def list_dumps(folder: Path) -> DumpList:
    """Return the list of dumps, newest first."""
    path = folder / _LIST
    return msgspec.json.decode(path.read_bytes(), type=DumpList) if path.exists() else DumpList()


def path_of(folder: Path, name: str) -> tuple[Path, str]:
    """Return a dump's path and SHA-256. Raises DumpNotFound for anything that is not in the list."""
    path, digests = folder / name, {one.name: one.sha256 for one in list_dumps(folder).dumps}
    if name not in digests or not path.is_file():
        raise DumpNotFound("there is no dump of this name: `GET /v1/dumps` lists them", field="name")
    return path, digests[name]


def write_dumps(engine: Engine, folder: Path, now: datetime) -> DumpList:
    """Write all results as JSONL and CSV, list them, delete those older than KEPT nights, and return the list.

    Dumps from before the last removal are deleted too, since they may contain what was removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(folder.with_name(_KEY))
    made = [_signed(one, key) for one in _written(engine, folder, now)]
    names = {one.name for one in made}
    removed_at = moderation.last_removal(engine)
    earlier = [one for one in list_dumps(folder).dumps if one.name not in names]
    if removed_at is not None:
        earlier = [one for one in earlier if datetime.fromisoformat(one.made_at) > removed_at]
    kept = [*made, *earlier][: 2 * KEPT]
    listed = DumpList(key=base64.b64encode(bytes(key.verify_key)).decode(), dumps=kept)
    write_whole(folder / _LIST, msgspec.json.encode(listed))
    for path in folder.glob("results-*.gz"):
        if path.name not in {one.name for one in kept}:
            path.unlink(missing_ok=True)
    return listed


def write_parquet(engine: Engine, path: Path) -> int:
    """Write one line per measured row to a Parquet file; return how many. Needs the extra `[parquet]`."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    n_rows, partial = 0, path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with parquet.ParquetWriter(partial, schema) as writer:
            for several in _batches(engine, utc_now()):
                rows = list(table_rows(several))
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
                n_rows += len(rows)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return n_rows


def _written(engine: Engine, folder: Path, now: datetime) -> list[Dump]:
    """Write both files in one pass over the database, and put them in place once both are complete."""
    partial = {form: folder / f"{_name(form, now)}.{os.getpid()}.partial" for form in _LINES}
    n_results = 0
    try:
        with ExitStack() as stack:
            packed = {form: stack.enter_context(_packed(path)) for form, path in partial.items()}
            packed["csv"].write(csv_head().encode())
            for several in _batches(engine, now):
                n_results += len(several)
                for form, file in packed.items():
                    file.write(_LINES[form](several))
        return [_placed(path, folder / _name(form, now), form, n_results, now) for form, path in partial.items()]
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def _name(form: DumpFormat, now: datetime) -> str:
    return f"results-v{SCHEMA_VERSION}-{now.date().isoformat()}.{form}.gz"


@contextmanager
def _packed(path: Path) -> Iterator[gzip.GzipFile]:
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        yield packed


def _placed(partial: Path, path: Path, form: DumpFormat, n_results: int, now: datetime) -> Dump:
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    n_bytes = partial.stat().st_size
    partial.replace(path)
    made_at = now.isoformat(timespec="seconds")
    return Dump(name=path.name, format=form, made_at=made_at, n_results=n_results, n_bytes=n_bytes, sha256=digest)


def text_of(name: str, made_at: str, sha256: str) -> bytes:
    """Return the text that a dump's signature signs."""
    return f"offload-advisor dump\n{name}\n{made_at}\n{sha256}\n".encode()


def _signed(one: Dump, key: SigningKey) -> Dump:
    signature = key.sign(text_of(one.name, one.made_at, one.sha256)).signature
    return msgspec.structs.replace(one, signature=base64.b64encode(signature).decode())


def _key(path: Path) -> SigningKey:
    """Return the service's key, created if there is none, readable for its user only.

    It is linked into place complete, so that two processes that start together get the same one.
    """
    if not path.exists():
        new = path.with_name(f"{path.name}.{os.getpid()}")
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE)) as file:
            file.write(bytes(SigningKey.generate()))
        with suppress(FileExistsError):
            os.link(new, path)
        new.unlink()
    return SigningKey(path.read_bytes())


_ENCODER = msgspec.json.Encoder()
_LINES: dict[DumpFormat, Callable[[list[DumpedResult]], bytes]] = {
    "jsonl": _ENCODER.encode_lines,
    "csv": lambda several: "".join(csv_lines(several)).encode(),
}


def _batches(engine: Engine, now: datetime) -> Iterator[list[DumpedResult]]:
    last = ""
    while several := listed_results.after_id(engine, last, _BATCH, now - OLD_ENOUGH):
        last = several[-1].result.id
        yield [
            made_from(DumpedResult, as_result(one), prediction=one.result.prediction, owner=one.owner)
            for one in several
        ]
