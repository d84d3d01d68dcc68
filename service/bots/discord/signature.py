"""Whether a request is Discord's: Ed25519 over timestamp and raw body (discord-api-docs, interactions/overview)."""

from __future__ import annotations

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

WINDOW_SECONDS = 300  # Discord does not ask for one: without it a recorded request would be good for ever
_HEX = frozenset("0123456789abcdefABCDEF")


def is_signed(public_key: str, body: bytes, timestamp: str, signature: str, now: float) -> bool:
    """Return whether Discord signed this body, within five minutes of `now` (seconds since 1970)."""
    if len(signature) != 128 or not _HEX.issuperset(signature):
        return False
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > WINDOW_SECONDS:
        return False
    try:
        VerifyKey(bytes.fromhex(public_key)).verify(timestamp.encode() + body, bytes.fromhex(signature))
    except (CryptoError, ValueError):
        return False
    return True
