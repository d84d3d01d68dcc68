"""The host's Ed25519 key: made on this machine, kept in the state folder, never sent."""

from __future__ import annotations

import base64
import binascii

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey

from service.wire.measuring.agent import enrolment_text, signed_text
from workers.agent.errors import HostError, NotEnrolled
from workers.agent.state import KEY, State


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
        """Return the signature of one call."""
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
