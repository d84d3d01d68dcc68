"""Multimodal projectors: Gemma 3's, a SigLIP encoder of 27 layers for images of 896 x 896, and encoders of any shape.

Shapes: google/gemma-3-12b-it config.json (vision_config); names: llama.cpp gguf-py/gguf/constants.py, MMPROJ.
"""

from __future__ import annotations

from service.engine.ggml_types import tensor_bytes
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import Header, Tensor

_N_LAYER, _N_EMBD, _N_FF, _N_TEXT = 27, 1152, 4304, 3840

GEMMA3_METADATA: dict[str, int | float | str | bool] = {
    "general.architecture": "clip",
    "general.type": "mmproj",
    "clip.has_vision_encoder": True,
    "clip.projector_type": "gemma3",
    "clip.vision.image_size": 896,
    "clip.vision.patch_size": 14,
    "clip.vision.embedding_length": _N_EMBD,
    "clip.vision.feed_forward_length": _N_FF,
    "clip.vision.block_count": _N_LAYER,
    "clip.vision.attention.head_count": 16,
}


def gemma3_tensors(n_text: int = _N_TEXT) -> tuple[Tensor, ...]:
    """Return the tensor table, matrices in f16 and the rest in f32. `n_text`: the model's embedding size."""
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("v.patch_embd.weight", (14, 14, 3, _N_EMBD)), ("v.patch_embd.bias", (_N_EMBD,)),
        ("v.position_embd.weight", (_N_EMBD, 4096)), ("v.post_ln.weight", (_N_EMBD,)), ("v.post_ln.bias", (_N_EMBD,)),
        ("mm.input_projection.weight", (n_text, _N_EMBD)), ("mm.soft_emb_norm.weight", (_N_EMBD,)),
    ]  # fmt: skip
    for i in range(_N_LAYER):
        matrices = {f"attn_{part}": (_N_EMBD, _N_EMBD) for part in ("q", "k", "v", "out")}
        matrices |= {"ffn_up": (_N_EMBD, _N_FF), "ffn_down": (_N_FF, _N_EMBD)}
        for name, matrix in matrices.items():
            shapes += [(f"v.blk.{i}.{name}.weight", matrix), (f"v.blk.{i}.{name}.bias", matrix[1:])]
        shapes += [(f"v.blk.{i}.{norm}.{part}", (_N_EMBD,)) for norm in ("ln1", "ln2") for part in ("weight", "bias")]
    tensors, offset = [], 0
    for name, dims in shapes:
        kind = "f16" if len(dims) > 1 and "position" not in name else "f32"
        tensors.append(Tensor(name, kind, dims, offset, tensor_bytes(kind, dims)))
        offset += -(-tensors[-1].nbytes // gguf_file.ALIGNMENT) * gguf_file.ALIGNMENT
    return tuple(tensors)


def gemma3_header() -> Header:
    """Return the header as the parser would return it."""
    return Header(dict(GEMMA3_METADATA), gemma3_tensors(), 0)


def gemma3_file(n_text: int = _N_TEXT) -> tuple[bytes, int]:
    """Return the bytes of the header, and the size of the data behind it."""
    tensors = gemma3_tensors(n_text)
    return gguf_file.header_bytes(GEMMA3_METADATA, tensors), gguf_file.data_bytes(tensors)


def encoder_header(
    kind: str, n_embd: int, n_ff: int, *, patch: int = 14, merge: int = 2, image: int = 768, n_text: int = 4096,
    gated: bool = False, deepstack: int = 0,
) -> Header:  # fmt: skip
    """Return the header of an encoder with 16 heads as far as its buffer depends on it."""
    sizes = {
        "image_size": image, "patch_size": patch, "embedding_length": n_embd, "feed_forward_length": n_ff,
        "attention.head_count": 16, "spatial_merge_size": merge, "projection_dim": n_text,
    }  # fmt: skip
    names = ["v.blk.0.ffn_up.weight", *(["v.blk.0.ffn_gate.weight"] if gated else ())]
    names += [f"v.deepstack.{8 + 8 * n}.fc1.weight" for n in range(deepstack)]
    tensors = tuple(Tensor(name, "f16", (n_embd, n_ff), 0, tensor_bytes("f16", (n_embd, n_ff))) for name in names)
    metadata: dict[str, int | float | str | bool] = {f"clip.vision.{key}": size for key, size in sizes.items()}
    return Header({"general.architecture": "clip", "clip.projector_type": kind, **metadata}, tensors, 0)
