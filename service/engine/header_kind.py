"""What a GGUF file is by its header, where it is not a language model that runs alone.

Sources: `general.type` and `general.architecture` as llama.cpp's converters write them (gguf-py constants.py: GGUFType,
MODEL_ARCH); a drafter of next-token layers has those alone, without the model's own first layer.
"""

from __future__ import annotations

from service.engine.gguf.header import Header

_TYPES = {
    "adapter": "an adapter (LoRA)", "mmproj": "a projector for images or sound", "imatrix": "an importance matrix",
    "vocab": "a vocabulary",
}  # fmt: skip
_ARCHITECTURES = {
    "clip": "a projector for images or sound", "dflash": "a drafter (DFlash)", "dflash-draft": "a drafter (DFlash)",
    "eagle3": "a drafter (EAGLE-3)",
}  # fmt: skip


def what_else(header: Header) -> str | None:
    """Return what the file is in words, None for what may be a language model."""
    kind, architecture = header.metadata.get("general.type"), header.metadata.get("general.architecture")
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    if "imatrix.datasets" in header.metadata or "imatrix.chunk_count" in header.metadata:
        return _TYPES["imatrix"]
    if isinstance(architecture, str) and architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    if not header.tensors:
        return "a vocabulary" if "tokenizer.ggml.model" in header.metadata else "a header without tensors"
    layers = {tensor.name.split(".")[1] for tensor in header.tensors if tensor.name.startswith("blk.")}
    if layers and "0" not in layers and f"{architecture}.nextn_predict_layers" in header.metadata:
        return "a drafter: the next-token layers (MTP) of a model, without the model"
    return None
