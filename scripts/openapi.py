"""Write openapi.json and the pages of docs that are lists from the code; --check only says whether they are so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from scripts.api_page import api_markdown, shapes_markdown
from scripts.cli_page import cli_markdown
from scripts.client_page import clients_markdown
from scripts.logs_page import logs_markdown
from scripts.metrics_page import metrics_markdown
from scripts.rules_page import rules_markdown
from service.settings import VARIABLES, Settings, as_environment
from service.web.documentation.document import openapi_json
from service.wire.problem import PROBLEM_TYPES

ROOT = Path(__file__).parent.parent
_INTRODUCTION = """\
# Problems

Every error of the API is an `application/problem+json` object (RFC 9457). `type` is the address of a section on this
page, `title` and `status` belong to the type, and `detail` says what is wrong with this request. Where they help, there
are also `field` (the path of the wrong value), `choices` (valid values), `retry_after` (seconds, also as the header
`Retry-After`) and `instance`.

This file is written by `make openapi`.
"""


def problems_markdown() -> str:
    """Return docs/problems.md."""
    return "\n".join((_INTRODUCTION, *_sections()))


def _sections() -> Iterator[str]:
    for slug, kind in PROBLEM_TYPES.items():
        yield f"## {slug}\n\n{kind.title}: {kind.status}.\n\n{kind.meaning}\n\n{kind.remedy}\n"


_SETTINGS_INTRODUCTION = """\
# Settings

The service is configured by environment variables, which are read once at startup. `advisor serve` passes them to the
processes that it starts. If a value is wrong, the service does not start, and the error names the variable. Behind a
proxy that terminates TLS, set `ADVISOR_PUBLIC_URL`: links are made from it, and `X-Forwarded-Proto` is ignored.

This file is written by `make openapi`.
"""


def settings_markdown() -> str:
    """Return docs/settings.md."""
    hints, defaults = get_type_hints(Settings, include_extras=True), as_environment(Settings())
    sections = (
        f"## {name}\n\n{hints[field].__metadata__[-1]}\n\n"
        f"Default: {f'`{defaults[name]}`' if name in defaults else 'not set'}.\n"
        for name, field in VARIABLES.items()
    )
    return "\n".join((_SETTINGS_INTRODUCTION, *sections))


def written() -> dict[Path, bytes]:
    """Return the content of every file that this script writes."""
    return {
        ROOT / "openapi" / "openapi.json": openapi_json(),
        ROOT / "docs" / "api.md": api_markdown().encode(),
        ROOT / "docs" / "shapes.md": shapes_markdown().encode(),
        ROOT / "docs" / "cli.md": cli_markdown().encode(),
        ROOT / "docs" / "clients.md": clients_markdown().encode(),
        ROOT / "docs" / "problems.md": problems_markdown().encode(),
        ROOT / "docs" / "settings.md": settings_markdown().encode(),
        ROOT / "docs" / "metrics.md": metrics_markdown().encode(),
        ROOT / "docs" / "logs.md": logs_markdown().encode(),
        ROOT / "docs" / "rules.md": rules_markdown().encode(),
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
