"""Examples for the API's documentation. `examples.json` has those of answers, `document.json` those of requests."""

from __future__ import annotations

from importlib import resources

import msgspec
from litestar.openapi.spec import Example

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
REPO = "unsloth/Qwen3-235B-A22B-GGUF"
EXAMPLES = msgspec.json.decode(
    resources.files("service.web.documentation").joinpath("examples.json").read_bytes(), type=dict[str, Example]
)
