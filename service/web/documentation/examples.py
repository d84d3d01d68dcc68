"""Examples for the API's documentation. `examples.json` has those of answers, `document.json` those of requests."""

from __future__ import annotations

from litestar.openapi.spec import Example

from service.engine.tables import table_of

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
REPO = "unsloth/Qwen3-235B-A22B-GGUF"
EXAMPLES = table_of("examples.json", dict[str, Example], "service.web.documentation")
