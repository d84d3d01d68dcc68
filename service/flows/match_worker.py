"""The process that matches dangerous patterns: names and patterns in on standard input, a line a pattern out."""

from __future__ import annotations

import sys

import msgspec

from service.engine.errors import InvalidFlags
from service.engine.overrides import matching
from service.flows.matching import SECONDS, Answered, Asked

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
    """Answer each pattern as soon as it is matched; whoever reads knows by the last line where it stopped."""
    _limit()
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    for pattern in asked.patterns:
        try:
            answer = Answered(found=matching(pattern, asked.names))
        except InvalidFlags as refused:
            answer = Answered(refused=refused.detail)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
