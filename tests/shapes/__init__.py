"""Published shapes of models: metadata and tensor names with their dimensions, before weights get types.

Hyperparameters are those of each model's published config.json; tensor names and shapes follow the conversion
conventions of llama.cpp (gguf-py/gguf/tensor_mapping.py, convert_hf_to_gguf.py). One file a family, as the graphs have.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.shapes import compressed, dense, embedding, gemma, gqa, hybrid, latent, moe, sparse, state_space, windows
from tests.shapes.rows import Shape as Shape

SHAPES: dict[str, Callable[[], Shape]] = latent.SHAPES | gqa.SHAPES | windows.SHAPES | hybrid.SHAPES | gemma.SHAPES
BESIDES: dict[str, Callable[[], Shape]] = (
    latent.OLD_FILES | hybrid.BESIDES | gqa.BESIDES | gemma.BESIDES | embedding.BESIDES
)
SHAPES |= compressed.SHAPES | dense.SHAPES | moe.SHAPES | state_space.SHAPES | sparse.SHAPES
