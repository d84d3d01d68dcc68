"""Write (or with --check compare) the mainline rows of the type table from the `gguf` package's constants.

What the package knows of a type is its id, block size and bytes; ik_llama.cpp's types and the columns on kernels come
from the engines' sources and are kept as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

# Types of activations, never of weights in a file; the package's sizes for them are not the engines' blocks
# (block_q8_1 is 36 bytes in ggml-common.h, ik_llama.cpp's block_q8_K 296).
_NOT_OURS = {"Q8_1", "Q8_K"}
TABLE = Path(__file__).parent.parent / "service/engine/data/ggml_types.json"


def updated(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the table with id, block size and bytes of every type in the package, ordered by id."""
    by_id = {row["id"]: dict(row) for row in rows}
    for kind in GGMLQuantizationType:
        block, n_bytes = GGML_QUANT_SIZES[kind]
        row = by_id.setdefault(kind.value, {"id": kind.value, "name": kind.name.lower()})
        if kind.name not in _NOT_OURS:
            row |= {"block": block, "bytes": n_bytes, "mainline": True}
    return [by_id[key] for key in sorted(by_id)]  # type: ignore[type-var]


def main() -> None:
    """Write the table; with --check exit with 1 if it differs."""
    old = TABLE.read_text()
    new = json.dumps(updated(json.loads(old)), indent=1) + "\n"
    if "--check" in sys.argv:
        if json.loads(new) != json.loads(old):
            sys.exit("service/engine/data/ggml_types.json differs from the gguf package: run `make types`")
        print(f"type table: {len(json.loads(old))} types, as in the gguf package")
        return
    TABLE.write_text(new)


if __name__ == "__main__":
    main()
