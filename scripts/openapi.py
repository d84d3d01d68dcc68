"""Write openapi/openapi.json and docs/problems.md from the code; with --check only say whether they are as written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from service.web.document import openapi_json
from service.wire.problem import PROBLEM_TYPES

ROOT = Path(__file__).parent.parent
_INTRODUCTION = """\
# Problems

Every error of the API is an `application/problem+json` object (RFC 9457): `type` leads to a heading here, `title` and
`status` belong to the type, `detail` says what is wrong with this request. Where they help there are `field` (the path
of what is wrong), `choices` (what would be right), `retry_after` (seconds, also as `Retry-After`) and `instance`.

This file is written by `make openapi`.
"""


def problems_markdown() -> str:
    """Return docs/problems.md."""
    return "\n".join((_INTRODUCTION, *_sections()))


def _sections() -> Iterator[str]:
    for slug, kind in PROBLEM_TYPES.items():
        yield f"## {slug}\n\n{kind.title}: {kind.status}.\n\n{kind.meaning}\n\n{kind.remedy}\n"


def written() -> dict[Path, bytes]:
    """Return the content of every file that this script writes."""
    return {
        ROOT / "openapi" / "openapi.json": openapi_json(),
        ROOT / "docs" / "problems.md": problems_markdown().encode(),
    }


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with --check; 1 when one differs."""
    different = [path for path, content in written().items() if not path.exists() or path.read_bytes() != content]
    for path in different:
        print(f"{path.relative_to(ROOT)} {'is not as the code has it' if '--check' in arguments else 'written'}")
        if "--check" not in arguments:
            path.write_bytes(written()[path])
    return 1 if different and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
