"""Whether a request is Slack's: HMAC-SHA256 over version, timestamp and raw body (docs.slack.dev)."""

from __future__ import annotations

import hashlib
import hmac

WINDOW_SECONDS = 300


def is_signed(secret: str, body: bytes, timestamp: str, signature: str, now: float) -> bool:
    """Return whether Slack signed this body, within five minutes of `now` (seconds since 1970)."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > WINDOW_SECONDS:
        return False
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={digest}".encode(), signature.encode("utf-8", "replace"))
