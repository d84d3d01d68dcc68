"""The agent's state folder, readable by its user only: its Ed25519 key, which is made on this machine and never sent,
its enrolment and the counter of signed calls.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey

from service.wire.measuring.agent import enrolment_text, signed_text
from workers.agent.errors import AlreadyRunning, HostError, NotEnrolled, naming

KEY, ENROLLED, COUNTER, LOCK, DOING = "key", "host.json", "counter", "lock", "doing.json"
_MAX_FILE_BYTES = 64 << 10
T = TypeVar("T")


class Enrolled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where this host is registered. `service`: its address; `host`: our id there."""

    service: str
    host: str
    pseudonym: str
    owner: str


class Doing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a running agent is doing, for `advisor host status`. `at`: ISO 8601, UTC."""

    what: Literal["starting", "waiting", "measuring", "idle", "stopped"]
    at: str
    text: str = ""
    run: str | None = None


class State:
    """The state folder, created if missing, closed to all other users."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Create the folder. Raises HostError if that fails, or if others can write to it."""
        with naming(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.path.stat().st_mode
        if mode & 0o022:
            raise HostError(f"{self.path} can be written by other users: chmod 700 {self.path}")

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it is missing. Raises HostError if it cannot be read."""
        with naming(self.path / name), suppress(FileNotFoundError), (self.path / name).open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
        return None

    def decoded(self, name: str, kind: type[T]) -> T | None:
        """Return the decoded content of a JSON file, None if it is missing or empty. Raises HostError as `read`, and
        for invalid content."""
        data = self.read(name)
        try:
            return msgspec.json.decode(data, type=kind) if data else None
        except msgspec.MsgspecError as error:
            raise HostError(f"{self.path / name} is damaged: {error}") from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically and durably, readable by this user only."""
        fresh = self.path / f".{name}.new"
        with suppress(FileNotFoundError):
            fresh.unlink()
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path / name)

    def remove(self, *names: str) -> None:
        """Remove files, if they exist."""
        for name in names:
            with suppress(FileNotFoundError):
                (self.path / name).unlink()

    def enrolled(self) -> Enrolled:
        """Return where this host is registered. Raises NotEnrolled."""
        found = self.decoded(ENROLLED, Enrolled)
        if found is None:
            raise NotEnrolled(f"{self.path} holds no host: `advisor host enrol URL --code …` creates one")
        return found

    def doing(self) -> Doing | None:
        """Return what the agent last noted that it is doing."""
        return self.decoded(DOING, Doing)

    def next_counter(self) -> int:
        """Return a number greater than all before it, saved to disk before it is used."""
        last = self.read(COUNTER)
        try:
            number = int(last or 0) + 1
        except ValueError:
            raise HostError(
                f"{self.path / COUNTER} is not a number: remove it; the service knows the last one"
            ) from None
        self.write(COUNTER, str(number).encode())
        return number

    def raise_counter(self, last: int) -> None:
        """Continue after `last`, the number that the service knows."""
        if last > int(self.read(COUNTER) or 0):
            self.write(COUNTER, str(last).encode())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder for one agent. Raises AlreadyRunning if another holds it."""
        with (self.path / LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise AlreadyRunning(f"another agent runs with {self.path}") from None
            yield

    def is_held(self) -> bool:
        """Return whether an agent is using this folder."""
        try:
            with self.alone():
                return False
        except AlreadyRunning:
            return True
        except OSError:
            return False


def default_folder() -> Path:
    """Return the state folder of the user's own agent."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "offload-advisor" / "host"


class HostKey:
    """A signing key that does not expose its private half."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    @property
    def public(self) -> str:
        """Return the public key in base64."""
        return base64.b64encode(bytes(self._key.verify_key)).decode()

    def _sign(self, text: bytes) -> str:
        return base64.b64encode(self._key.sign(text).signature).decode()

    def sign_enrolment(self, authority: str, code: str) -> str:
        """Return the signature that proves we hold the private key of the public one we send."""
        return self._sign(enrolment_text(authority, code, self.public))

    def sign_call(self, authority: str, path: str, host: str, counter: int, body: bytes) -> str:
        return self._sign(signed_text(authority, "POST", path, host, counter, body))

    def __repr__(self) -> str:
        return f"HostKey({self.public})"


def make_key(state: State) -> HostKey:
    """Create a key in the state folder and return it. Raises HostError if there already is one."""
    if state.read(KEY) is not None:
        raise HostError(f"{state.path} already holds a host's key: `advisor host leave` gives it up")
    key = SigningKey.generate()
    state.write(KEY, base64.b64encode(bytes(key)) + b"\n")
    return HostKey(key)


def load_key(state: State) -> HostKey:
    """Return the key in the state folder. Raises NotEnrolled; HostError if others can read it or it is invalid."""
    data = state.read(KEY)
    if data is None:
        raise NotEnrolled(f"{state.path} holds no key: `advisor host enrol URL --code …` creates one")
    if (state.path / KEY).stat().st_mode & 0o077:
        raise HostError(f"{state.path / KEY} can be read by other users: enrol this machine again")
    try:
        return HostKey(SigningKey(base64.b64decode(data.strip(), validate=True)))
    except (CryptoError, ValueError, TypeError, binascii.Error):
        raise HostError(f"{state.path / KEY} is not a key: enrol this machine again") from None
