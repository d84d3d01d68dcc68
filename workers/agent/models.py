"""Finds GGUF files in the folders that the policy names: identified by name, size and header at once, later by content.

Headers are read by the same bounded parser as in the service, never by an engine. Hashes are kept between starts, keyed
by path, size, modification time and inode.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from service.engine.errors import AdvisorError
from service.engine.gguf.parser import HeaderParser
from service.scratch import write_whole
from service.wire.measuring.hosts import MAX_MODELS, ModelFile
from workers.agent.local import LocalModel
from workers.agent.policy import Policy, folder

_MAX_FOUND = 20_000
_MAX_NAME = 200
_PIECE = 1 << 20
_BLOCK = 8 << 20
_MAX_CACHE_BYTES = 16 << 20


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file of this size, modification time (`changed`, ns) and inode. `header`: None if it is not a
    readable GGUF file."""

    size: int
    changed: int
    inode: int
    header: str | None
    content: str | None = None


class Hashes:
    """File hashes, persisted in one file of the state folder. Only one thread at a time may write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._read()

    def _read(self) -> dict[str, Known]:
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_CACHE_BYTES), type=dict[str, Known])
        except (OSError, msgspec.DecodeError):
            return {}

    def get(self, path: Path, found: os.stat_result) -> Known | None:
        """Return what is known of a file, None if it has changed since."""
        known = self._known.get(str(path))
        now = (found.st_size, found.st_mtime_ns, found.st_ino)
        return known if known is not None and (known.size, known.changed, known.inode) == now else None

    def put(self, path: Path, known: Known) -> None:
        self._known = {**self._known, str(path): known}

    def save(self) -> None:
        """Write everything to disk, dropping files that are gone."""
        kept = {path: known for path, known in self._known.items() if Path(path).exists()}
        write_whole(self._path, msgspec.json.encode(kept))


def find_models(policy: Policy, hashes: Hashes) -> tuple[LocalModel, ...]:
    """Return the GGUF files in the policy's folders by path, at most MAX_MODELS. Invalid files are left out."""
    models: list[LocalModel] = []
    for path in sorted(dict.fromkeys(_files(policy)), key=str):
        model = _model(path, hashes)
        if model is not None:
            models.append(model)
        if len(models) == MAX_MODELS:
            break
    return tuple(models)


def hash_contents(models: tuple[LocalModel, ...], hashes: Hashes, stop: Callable[[], bool]) -> tuple[LocalModel, ...]:
    """Hash the first model without a content hash, and return the models with it; unchanged if all have one.

    Meant for the background: it lowers its thread's priority, and leaves nothing in the page cache that was not there
    before. `stop` is asked between blocks of 8 MiB; a stopped hash is lost.
    """
    missing = next((i for i, model in enumerate(models) if model.file.sha256 is None), None)
    if missing is None:
        return models
    with contextlib.suppress(OSError, AttributeError):  # on Linux each thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    model = models[missing]
    content = content_sha256(model.path, stop)
    if content is None:
        return models
    with contextlib.suppress(OSError):
        known = hashes.get(model.path, model.path.stat())
        if known is not None and known.size == model.file.size:
            hashes.put(model.path, msgspec.structs.replace(known, content=content))
            hashes.save()
    done = msgspec.structs.replace(model, file=msgspec.structs.replace(model.file, sha256=content))
    return (*models[:missing], done, *models[missing + 1 :])


def content_sha256(path: Path, stop: Callable[[], bool] = lambda: False) -> str | None:
    """Return the hash of a whole file; None if stopped, or if the file changed or cannot be read."""
    was_cold = page_cache([path]) == "cold"
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            while block := file.read(_BLOCK):
                if stop():
                    return None
                digest.update(block)
                if was_cold:
                    os.posix_fadvise(file.fileno(), file.tell() - len(block), len(block), os.POSIX_FADV_DONTNEED)
            after = os.fstat(file.fileno())
    except OSError:
        return None
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return digest.hexdigest() if same else None


def header_sha256(path: Path, size: int) -> str | None:
    """Return the hash of a file up to the end of its tensor table; None if it is not a readable GGUF file."""
    parser, digest, read = HeaderParser(size), hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                header = parser.feed(piece)
                if header is not None:
                    piece += file.read(max(0, header.n_bytes - read - len(piece)))
                    digest.update(piece[: header.n_bytes - read])
                    return digest.hexdigest()
                digest.update(piece)
                read += len(piece)
    except (OSError, AdvisorError):
        return None
    return None


def _files(policy: Policy) -> Iterator[Path]:
    left = _MAX_FOUND
    for text in policy.models.folders:
        for top, _, names in os.walk(folder(text)):
            for name in names:
                left -= 1
                if left < 0:
                    return
                if (
                    name.lower().endswith(".gguf")
                    and len(name) <= _MAX_NAME
                    and name.isprintable()
                    and "\\" not in name
                ):
                    yield Path(top) / name


def _model(path: Path, hashes: Hashes) -> LocalModel | None:
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    known = hashes.get(path, found)
    if known is None:
        header = header_sha256(path, found.st_size)
        known = Known(size=found.st_size, changed=found.st_mtime_ns, inode=found.st_ino, header=header)
        hashes.put(path, known)
    if known.header is None:
        return None
    file = ModelFile(name=path.name, size=known.size, header_sha256=known.header, sha256=known.content)
    return LocalModel(path=path, file=file)


PageCache: TypeAlias = Literal["cold", "warm", "unknown"]
_WINDOW = 1 << 30
_WARM, _COLD = 0.95, 0.05
_LOWEST_BIT = bytes(byte & 1 for byte in range(256))  # set if resident; mincore reserves the others
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_READ, _MAP_SHARED, _FAILED = 1, 1, ctypes.c_void_p(-1).value
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def page_cache(files: Sequence[Path]) -> PageCache:
    """Return `warm` if at least 95 % of the files' pages are in memory, `cold` if at most 5 % are, else `unknown`.

    Also `unknown` for other users' files that we cannot write: since Linux 5.2 the kernel tells the truth only to
    owners and writers (mm/mincore.c, can_do_mincore), and all others that everything is resident.
    """
    pages = resident = 0
    for path in files:
        try:
            if path.stat().st_uid != os.getuid() and not os.access(path, os.W_OK):
                return "unknown"
            seen = _resident(path)
        except OSError:
            return "unknown"
        pages, resident = pages + seen[0], resident + seen[1]
    if not pages or _COLD < resident / pages < _WARM:
        return "unknown"
    return "warm" if resident / pages >= _WARM else "cold"


def _resident(path: Path) -> tuple[int, int]:
    """Return (pages of the file, pages in memory), looking at a GiB at a time. Raises OSError."""
    pages = resident = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for offset in range(0, size, _WINDOW):
            vector = _window(file.fileno(), offset, min(_WINDOW, size - offset))
            pages += len(vector)
            resident += vector.translate(_LOWEST_BIT).count(1)
    return pages, resident


def _window(descriptor: int, offset: int, length: int) -> bytes:
    address = _LIBC.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, offset)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        vector = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        if _LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    finally:
        _LIBC.munmap(address, length)
    return vector.raw
