"""What the local Hub can be told to do wrong, and what it remembers of the requests it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Place: TypeAlias = Literal["api", "resolve", "cdn"]
Kind: TypeAlias = Literal[
    "status", "body", "redirect", "cut", "drip", "delay", "ignore-range", "content-range", "encoded"
]


@dataclass
class Fault:
    """One thing to do wrong, `times` times (None: always), to requests of one kind for one repo or file.

    `status` answers with that status and `headers`; `body` with `content`; `redirect` leads to `location`; `cut` breaks
    off in the middle of the body; `drip` sends it a byte at a time, `seconds` apart; `delay` waits `seconds` first;
    `ignore-range` sends the whole file; `content-range` states `location` as the range; `encoded` calls it gzip.
    """

    kind: Kind
    at: Place
    repo: str | None = None
    path: str | None = None
    times: int | None = None
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    location: str = ""
    seconds: float = 0.0

    def concerns(self, at: Place, repo: str, path: str) -> bool:
        """Whether this fault is for such a request, and not used up."""
        here = self.at == at and self.repo in (None, repo) and (self.path is None or path.endswith(self.path))
        return here and self.times != 0


@dataclass
class Request:
    """One request as an origin saw it, and the bytes of the body that it sent so far."""

    origin: Literal["api", "cdn"]
    path: str
    range: str | None
    authorization: str | None
    status: int
    n_bytes: int = 0
