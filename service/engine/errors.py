"""Everything the engine refuses, as one tree.

AdvisorError
├── InvalidInput            a field of the request is wrong: says which, and what would be right
│   ├── UnknownHardware     a GPU or CPU name that the catalogue lacks; carries the nearest known names
│   ├── InvalidHardware     a hardware description that cannot be read or cannot exist
│   ├── InvalidFlags        a command or flag value that the engine would not accept
│   └── UnknownVariant      a variant that the repo does not have; carries those it has
└── InvalidHeader           bytes that are not a GGUF header, or a hostile one
    ├── NotGguf             the magic number is missing
    ├── TruncatedHeader     the file ends before its header does
    └── UnsupportedModel    a header without the metadata that every model has

`problem` is the heading in docs/problems.md; nothing here knows HTTP.
"""

from __future__ import annotations

from typing import ClassVar


class AdvisorError(Exception):
    """Base of every expected failure: `detail` is a sentence for the user, `field` the path of what is wrong."""

    problem: ClassVar[str] = "internal"

    def __init__(self, detail: str, *, field: str | None = None, choices: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.choices = choices


class InvalidInput(AdvisorError):
    problem = "invalid-request"


class UnknownHardware(InvalidInput):
    problem = "unknown-hardware"


class InvalidHardware(InvalidInput):
    problem = "invalid-hardware"


class InvalidFlags(InvalidInput):
    problem = "invalid-flags"


class UnknownVariant(InvalidInput):
    problem = "unknown-variant"


class InvalidHeader(AdvisorError):
    problem = "invalid-header"


class NotGguf(InvalidHeader):
    problem = "not-gguf"


class TruncatedHeader(InvalidHeader):
    problem = "truncated-header"


class UnsupportedModel(InvalidHeader):
    problem = "unsupported-model"
