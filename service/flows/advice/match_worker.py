"""The process that matches a dangerous pattern: names and pattern in on standard input, the answer out."""

from __future__ import annotations

import sys

import msgspec

from service.engine.errors import InvalidFlags
from service.engine.overrides import matching
from service.flows.advice.matching import SECONDS, MatchRequest, MatchResponse

MEMORY = 512 << 20


def _limit() -> None:
    """Where the system has limits: memory, processor time, and no core file."""
    try:
        import resource
    except ImportError:  # Windows: the deadline is all there is
        return
    seconds = int(SECONDS) + 1
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


def main() -> int:
    """Answer on standard output."""
    _limit()
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=MatchRequest)
    try:
        answer = MatchResponse(found=matching(asked.pattern, asked.names))
    except InvalidFlags as refused:
        answer = MatchResponse(refused=refused.detail)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
