"""What the pages show of their commands' output, held against what is printed, and written.

python -m tests.doc_blocks.writing [PAGE …]        run pages, and write into them what was printed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.doc_blocks.blocks import PAGES, Block, blocks_of
from tests.doc_blocks.running import Outcome, doc_runner


def examples(page: Path) -> Iterator[tuple[Block, Block]]:
    """Yield the blocks that show an output, each behind the one that printed it."""
    for above, below in pairwise(blocks_of(page)):
        if "output" in below.comments:
            yield above, below


def stale(page: Path, outcome: Outcome) -> list[str]:
    """Return the places of a page whose output is another one now, with that."""
    found = [(below, outcome.shown(below, above)) for above, below in examples(page)]
    return [f"{below.place} is now:\n{now}" for below, now in found if now != below.text]


def written(page: Path, outcome: Outcome) -> str:
    """Return a page with what was printed in each of its examples."""
    lines = page.read_text().split("\n")
    for above, below in reversed(list(examples(page))):
        fence = lines[below.line - 1]
        indent = fence[: len(fence) - len(fence.lstrip())]
        now = outcome.shown(below, above).rstrip("\n").split("\n")
        lines[below.line : below.line + below.text.count("\n")] = [f"{indent}{line}".rstrip() for line in now]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Write the pages named, or all that show an output; return 1 where one's commands fail."""
    asked = {Path(name).name for name in names}
    if unknown := asked - {page.name for page in PAGES}:
        sys.exit(f"not a page: {', '.join(sorted(unknown))}")
    pages = [page for page in PAGES if page.name in asked or (not names and any(examples(page)))]
    failures = []
    with doc_runner() as at:
        for page in pages:
            outcome = at.run(page)
            if outcome.failure:
                failures.append(outcome.failure)
                continue
            page.write_text(written(page, outcome))
            print(f"{page.name} written")
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
