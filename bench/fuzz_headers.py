"""Fuzz the reading of headers: `python -m bench.fuzz_headers [--inputs 1000000] [--seed 1]`.

Small valid headers are changed where it hurts (counts, lengths, types, offsets) and anywhere else, cut, spliced, and
fed whole, in pieces, or by jumps over arrays known from another file. Whatever comes must be a header or a refusal,
within a second and 64 MiB; where a header comes whole and in pieces, it must be the same. Every sixteenth input is run
under coverage of the parser's steps from line to line (sys.settrace): what takes a new one, or is refused in a new way,
is changed further.

A failure is written to bench/results/found/ and ends in exit code 1; with --corpus, what found something new is kept.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from bench.soak import keep
from bench.stamp import stamp
from service.engine.errors import AdvisorError
from service.engine.gguf.header import Header
from service.engine.gguf.parser import HeaderParser, parse_header
from service.engine.gguf.window import Doubt, LargeArray, NeedMore

SLOW_SECONDS, MOST_MIB = 1.0, 64
CORPUS = Path(__file__).parent.parent / "tests/data/gguf_corpus"
_GGUF = "/engine/gguf/"
_NUMBERS = (0, 1, 2, 7, 8, 9, 31, 32, 255, 1 << 16, (1 << 20) + 1, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 56, 1 << 63,
            (1 << 64) - 1)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode
_VARYING = re.compile(r"""(['"]).*\1|[0-9]+""", re.DOTALL)


# --- valid headers to begin with


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _entry(key: bytes, kind: int, body: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + body


def _tensor(name: bytes, kind: int, offset: int, *dims: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def _file(entries: list[bytes], tensors: list[bytes], version: int = 3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(entries)) + b"".join(entries + tensors)


def _array(kind: int, n: int, body: bytes) -> bytes:
    return struct.pack("<IQ", kind, n) + body


def seeds() -> list[bytes]:
    """Return headers with every kind of value, and one with an array large enough to be jumped over."""
    scalars = [_entry(b"s%d" % kind, kind, bytes(size)) for kind, size in
               ((0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8))]  # fmt: skip
    texts = [_entry(b"general.architecture", 8, _text(b"qwen3")), _entry(b"empty", 8, _text(b""))]
    arrays = [_entry(b"a", 9, _array(4, 3, bytes(12))), _entry(b"w", 9, _array(8, 3, _text(b"x") * 3))]
    large = _entry(b"t.tokens", 9, _array(8, 4500, _text(b"") * 4500))
    tensors = [_tensor(b"a", 0, 0, 64), _tensor(b"b", 8, 256, 32, 4), _tensor(b"c", 144, 416, 256, 2, 2)]
    align = _entry(b"general.alignment", 4, struct.pack("<I", 64))
    return [
        _file(scalars, []), _file(texts + arrays, tensors), _file([*texts, align], [_tensor(b"a", 0, 0, 8)], 2),
        _file([*scalars, *texts, *arrays, align], tensors), _file([texts[0], large, scalars[0]], tensors),
    ]  # fmt: skip


def known_arrays(data: bytes) -> tuple[LargeArray, ...]:
    """Return the large arrays of a valid header."""
    parser = HeaderParser()
    parser.feed(data)
    return parser.arrays


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """Return an input of the pool with one to six changes."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place : place + 8] = rng.choice(_NUMBERS).to_bytes(8, "little")
        elif kind == 2:
            data[place : place + 4] = rng.randrange(512).to_bytes(4, "little")
        elif kind == 3:
            del data[place : place + rng.choice((1, 4, 8, 33))]
        elif kind == 4:
            data[place:place] = rng.randbytes(rng.randint(1, 16))
        elif kind == 5:
            other = rng.choice(pool)
            start = rng.randrange(len(other) + 1)
            data[place:place] = other[start : start + rng.randint(1, 120)]
        else:
            del data[place:]
    return bytes(data)


# --- reading


def read_whole(data: bytes, rng: random.Random) -> Header:
    """Parse all at once, as the header of a file of known or unknown size."""
    return parse_header(data, rng.choice((None, len(data), len(data) + 700, 1 << 40)))


def read_pieces(data: bytes, rng: random.Random) -> Header:
    """Parse in pieces, and compare with parsing all at once. Raises AssertionError if the outcomes differ."""
    whole = _outcome(lambda: parse_header(data))
    parser, start, header = HeaderParser(), 0, None
    try:
        while header is None and start < len(data):
            stop = start + rng.choice((1, 7, 64, 1000))
            header, start = parser.feed(data[start:stop]), stop
    except AdvisorError:
        assert isinstance(whole, str), "refused in pieces only"
        raise
    if header is None:
        assert isinstance(whole, str), "complete only at once"
        raise NeedMore(parser.needed)
    assert isinstance(whole, Header), "complete only in pieces"
    assert _encode(header) == _encode(whole), "another header in pieces"  # NaN is not equal to itself
    return header


def jump_reader(known: tuple[LargeArray, ...]) -> Callable[[bytes, random.Random], Header]:
    """Return a reader that jumps over the arrays of `known`."""

    def read(data: bytes, rng: random.Random) -> Header:
        parser, stop = HeaderParser(len(data) + 700, known), 200
        while (start := parser.position) < len(data):
            stop = max(stop, parser.needed)
            if parser.feed(data[start:stop]) is not None:
                break
            stop = max(parser.expected, parser.position) + 300
        if parser.header is None:
            raise NeedMore(parser.needed)
        return parser.header

    return read


def _outcome(read: Callable[[], Header]) -> Header | str:
    try:
        return read()
    except (AdvisorError, NeedMore) as error:
        return type(error).__name__


def attempt(read: Callable[[bytes, random.Random], Header], data: bytes, rng: random.Random) -> str:
    """Return `read`, how the input was refused, or what went wrong (starting with FAILED)."""
    outcome, took = _timed(read, data, rng)
    if took >= SLOW_SECONDS:  # of a large process a full garbage collection takes a second, whatever is read meanwhile
        outcome, took = _timed(read, data, rng)
    return outcome if took < SLOW_SECONDS else f"FAILED: took {took:.1f} s"


def _timed(read: Callable[[bytes, random.Random], Header], data: bytes, rng: random.Random) -> tuple[str, float]:
    started = time.process_time()
    try:
        read(data, rng)
        outcome = "read"
    except NeedMore:
        outcome = "asks for more"
    except Doubt:
        outcome = "in doubt"
    except AdvisorError as error:
        outcome = _VARYING.sub("#", error.detail)
    except Exception as error:  # the very thing that is looked for
        outcome = f"FAILED: {type(error).__name__}: {error}"
    return outcome, time.process_time() - started


class Coverage:
    """Which steps between lines of the parser have ever been taken."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int, int]] = set()
        self._new = False

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, run: Callable[[], str]) -> tuple[str, bool]:
        """Return the result of `run`, and whether it took a step never taken before."""
        self._new = False
        sys.settrace(self._called)
        try:
            return run(), self._new
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if _GGUF not in frame.f_code.co_filename:
            return None
        code, last = id(frame.f_code), 0

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            step = (code, last, frame.f_lineno)
            last = frame.f_lineno
            if step not in self._seen:
                self._seen.add(step)
                self._new = True
            return line

        return line


# --- the campaign


class Campaign:
    """One campaign: its inputs so far by outcome, and its failures."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool = seeds() + corpus()
        self.readers = (read_whole, read_pieces, jump_reader(known_arrays(seeds()[-1])))
        self.counts: Counter[str] = Counter()
        self.coverage = Coverage()
        self.failures: list[str] = []
        self.found: list[bytes] = []
        for data in self.pool:
            for read in self.readers:
                self._take(read, data, traced=True)
        self.found.clear()

    def run(self, n_inputs: int) -> None:
        """Try `n_inputs` more, or until twenty have failed."""
        for number in range(n_inputs):
            data = mutated(self.rng, self.pool)
            self._take(self.rng.choice(self.readers), data, traced=number % 16 == 0)
            if len(self.failures) == 20:
                return

    def _take(self, read: Callable[[bytes, random.Random], Header], data: bytes, traced: bool) -> None:
        is_new = False
        if traced:
            outcome, is_new = self.coverage.of(lambda: attempt(read, data, self.rng))
        else:
            outcome = attempt(read, data, self.rng)
        if outcome not in self.counts or is_new:
            self.found.append(data)
            self.pool.append(data)
        self.counts[outcome] += 1
        if outcome.startswith("FAILED"):
            self.failures.append(f"{outcome} ({keep('header', data)})")


def corpus() -> list[bytes]:
    """Return the inputs kept by earlier campaigns."""
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", action="store_true", help="keep what found something new in tests/data/gguf_corpus")
    arguments = parser.parse_args()
    print(stamp())
    started, campaign = time.monotonic(), Campaign(arguments.seed)
    before = _peak_mib()
    campaign.run(arguments.inputs)
    grown = _peak_mib() - before
    n = campaign.counts.total()
    print(
        f"seed {arguments.seed}: {n:,} inputs in {time.monotonic() - started:.0f} s, {len(campaign.coverage)} steps "
        f"from line to line, {len(campaign.found)} inputs found something new, {grown:.0f} MiB more at the peak"
    )
    for outcome, count in campaign.counts.most_common(60):
        print(f"  {count:>9,}  {outcome[:100]}")
    if grown > MOST_MIB:
        campaign.failures.append(f"FAILED: memory grew by {grown:.0f} MiB")
    if arguments.corpus:
        CORPUS.mkdir(exist_ok=True)
        for number, data in enumerate(campaign.found, len(corpus())):
            (CORPUS / f"{number:04d}.bin").write_bytes(data)
    print("\n".join(campaign.failures) or "no failure")
    return 1 if campaign.failures else 0


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
