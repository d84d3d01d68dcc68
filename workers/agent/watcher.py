"""Keeps a current description of the machine, and hashes its models while nothing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from workers.agent.engines import BENCH, SWEEP
from workers.agent.local import Machine
from workers.agent.models import Hashes, Known, find_models, hash_contents, header_sha256
from workers.agent.policy import Policy, allows_gpu, folder, pause_path
from workers.agent.probe import Gpus, describe, open_gpus
from workers.agent.watch import Watch

HASHES = "hashes.json"
FRESH_SECONDS = 60.0  # model folders may hold thousands of files, on disks that spin down


class Watcher:
    """One machine. Engines are asked again only if the policy or a program changed; RAM is measured once."""

    def __init__(self, state: Path, gpus: Gpus | None = None, ending: threading.Event | None = None) -> None:
        self.gpus = gpus or open_gpus()
        self._state, self._hashes = state, Hashes(state / HASHES)
        self._machine: Machine | None = None
        self._seen: object = None
        self._looked = float("-inf")
        self._ending = ending or threading.Event()
        self._free = threading.Event()
        self._free.set()
        self._thread: threading.Thread | None = None

    def look(self, policy: Policy) -> Machine:
        """Return the machine: its engines as of now, its models as of the last minute."""
        now, seen = time.monotonic(), (policy, _programs(policy))
        if self._machine is None or seen != self._seen:
            known = self._machine.probe.hardware if self._machine else None
            self._machine = describe(policy, self.gpus, self._hashes, hardware=known)
            self._seen, self._looked = seen, now
        elif now > self._looked + FRESH_SECONDS:
            models = find_models(policy, self._hashes)
            probe = replace(self._machine.probe, models=tuple(model.file for model in models))
            self._machine = replace(self._machine, models=models, probe=probe)
            self._looked = now
        self._hash()
        return self._machine

    def in_use(self, policy: Policy) -> str | None:
        """Return who is using the cards that the policy allows, None if nobody is."""
        cards = self._machine.gpus if self._machine else ()
        allowed = [card.index for card in cards if allows_gpu(policy, card.index, card.uuid)]
        halt = Watch(self.gpus, allowed, policy, pause_path(policy, self._state)).before()
        return halt.why if halt else None

    def fetched(self, contents: Mapping[Path, str]) -> None:
        """Register downloaded files with their verified content hashes."""
        for path, content in contents.items():
            at = path.stat()
            header = header_sha256(path, at.st_size)
            known = Known(size=at.st_size, changed=at.st_mtime_ns, inode=at.st_ino, header=header, content=content)
            self._hashes.put(path, known)
        self._hashes.save()
        self._looked = float("-inf")

    def rest(self, resting: bool) -> None:
        """Allow hashing in the background while the machine rests; a run gets disk and memory to itself."""
        (self._free.set if resting else self._free.clear)()

    def _hash(self) -> None:
        missing = self._machine is not None and any(model.file.sha256 is None for model in self._machine.models)
        if missing and self._free.is_set() and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._hash_all, name="hash", daemon=True)
            self._thread.start()

    def _hash_all(self) -> None:
        """Hash one file after another, as long as one can be hashed."""
        models = self._machine.models if self._machine else ()
        while not self._ending.is_set():
            hashed = hash_contents(models, self._hashes, self._is_ending)
            if hashed == models:
                return
            models, self._looked = hashed, float("-inf")

    def _is_ending(self) -> bool:
        """Wait while a run has the machine, and return whether the agent is to end. Asked between blocks."""
        while not self._ending.is_set() and not self._free.wait(0.5):
            pass
        return self._ending.is_set()


def _programs(policy: Policy) -> tuple[tuple[str, int, int], ...]:
    """Return a fingerprint of the benchmark programs, to notice when one is replaced."""

    found = []
    for text in policy.engines.folders:
        for name in (SWEEP, BENCH):
            path = folder(text) / name
            try:
                at = path.stat()
            except OSError:
                continue
            found.append((str(path), at.st_mtime_ns, at.st_size))
    return tuple(found)
