"""The process that matches one dangerous pattern: reads names and pattern on standard input, prints the answer."""

from __future__ import annotations

import sys

import msgspec

from service.engine.errors import InvalidFlags
from service.engine.overrides import matching
from service.flows.advice.matching import SECONDS, MatchRequest, MatchResponse

MEMORY = 512 << 20


def _limit() -> None:
    """Limit memory, processor time and core files, where the system can."""
    try:
        import resource
    except ImportError:  # Windows, where the parent's deadline has to do
        return
    seconds = int(SECONDS) + 1
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


def main() -> int:
    """Write the answer to standard output; return the exit status."""
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
