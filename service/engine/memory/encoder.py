"""The encoder of a multimodal projector: how many tokens an image has, and what its buffer takes.

llama.cpp 00dc8057 tools/mtmd/clip.cpp:1370-2090 (limits of each kind) and 3769-3900 (warm-up); ik_llama.cpp 37d82c231
examples/mtmd/clip.cpp:3285-3405 and 2711-2790. The buffer is reserved for the warm-up's image and grows with a larger
one, for which the server then may have no memory (llama.cpp issue 13414, ik_llama.cpp issue 1348).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

from service.engine.estimate import Estimate
from service.engine.gguf.header import Header
from service.engine.metadata import as_int

# with flash attention, or with the scores of one head at a time, or of all heads at once
Attention: TypeAlias = Literal["flash", "heads", "whole"]


class _Kind(NamedTuple):
    """Tokens of the warm-up's image and of the largest one, and patches along a side of a token, by default."""

    warm_up: int
    largest: int
    merge: int


_QWEN = _Kind(46 * 46, 4096, 2)
_KINDS = {
    "qwen2vl_merger": _QWEN, "qwen2.5vl_merger": _QWEN, "qwen3vl_merger": _QWEN, "ling3vl": _QWEN, "glm4v": _QWEN,
    "glm5v": _QWEN, "dots_ocr": _QWEN, "dots3note_v": _QWEN, "mimovl": _QWEN, "muse-glimmer": _Kind(32 * 32, 4096, 2),
    "kimik25": _Kind(64 * 64, 4096, 2), "pixtral": _Kind(256, 1024, 1), "kimivl": _Kind(256, 1024, 2),
    "gemma4v": _Kind(256, 1120, 3), "gemma4uv": _Kind(256, 1120, 1), "lfm2": _Kind(256, 256, 2),
    "minimax_m3": _Kind(256, 576, 2), "phi4": _Kind(256, 256, 1), "deepseek4v": _Kind(256, 384, 2),
}  # fmt: skip
# the tensor that leads to the model, and which of its sizes is the model's (clip_n_mmproj_embd)
_INTO_MODEL = {
    "gemma3": ("mm.input_projection.weight", 0), "gemma4v": ("mm.input_projection.weight", 1),
    "gemma4uv": ("mm.input_projection.weight", 1), "pixtral": ("mm.2.weight", 1), "kimivl": ("mm.2.weight", 1),
    "kimik25": ("mm.2.weight", 1), "lfm2": ("mm.2.weight", 1), "qwen2vl_merger": ("mm.2.bias", 0),
    "qwen2.5vl_merger": ("mm.2.bias", 0), "qwen3vl_merger": ("mm.2.bias", 0), "llama4": ("mm.model.fc.weight", 1),
    "internvl": ("mm.model.mlp.3.weight", 1),
}  # fmt: skip
_FIXED_SIZE = frozenset((
    "mlp", "ldp", "ldpv2", "resampler", "adapter", "gemma3", "gemma3nv", "internvl", "llama4", "idefics3", "cogvlm",
    "janus_pro",
))  # fmt: skip
_BATCHED = frozenset({"internvl", "gemma4v"})  # several images at once, of so many tokens together
_BATCH_TOKENS = 1024  # --mtmd-batch-max-tokens
_MASKED = frozenset({"qwen2.5vl_merger", "mimovl"})  # windows, by a mask of all patches
_GEMMA4_ONCE = 280  # tokens of its images before pull 28335
_UNKNOWN = 46  # tokens along a side of the largest image of a kind that is not known here
_SOUND = 1500  # positions of 30 seconds of sound, whatever is said in them (Whisper)
_FLASH_HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})  # ggml-cuda/fattn.cu
_BY_HEAD_FROM = 256 << 20  # scores of all heads, from which on ik_llama.cpp works on one after the other
_SPREAD = (0.9, 1.1)
_SOUND_SPREAD = (0.5, 2.0)  # kinds differ, and no log of one is known
_MOST = 1 << 16


class Images(NamedTuple):
    """What a build and a command say about images.

    `tokens`: of the largest, of any model, `gemma4_tokens`: of Gemma 4; `asked`: `--image-max-tokens`.
    """

    attention: Attention = "flash"
    tokens: int = 4096
    gemma4_tokens: int = 1120
    asked: int | None = None


def image_tokens(header: Header, images: Images) -> int:
    """Return the tokens of the largest image; 0 for what reads no images, and for kinds that are not known here."""
    if not _has(header, "vision"):
        return 0
    name, kind = _kind_name(header, "vision"), _kind(header)
    if kind is None:
        side = _trained_side(header) // (4 if name == "gemma3" else _merge(header, 2))
        return max(side, 1) ** 2 if name in _FIXED_SIZE else 0
    usual = images.gemma4_tokens if name.startswith("gemma4") else images.tokens
    return min(images.asked or min(kind.largest, usual), _MOST)


def images_at_once(header: Header, images: Images) -> bool:
    """Return whether the model reads an image without causal attention, all of it in one micro-batch.

    Of Gemma 4 only the larger models since images of theirs have more tokens (llama.cpp pull 28335): 1,536 and 2,560
    are E2B and E4B.
    """
    name = _kind_name(header, "vision")
    small = as_int(header.metadata.get("clip.vision.projection_dim"), 0) in (1536, 2560)
    causal = name == "gemma4v" and small and images.gemma4_tokens > _GEMMA4_ONCE
    return name in ("gemma3", "gemma4v", "gemma4uv", "deepseek4v") and not causal


def encoder_bytes(header: Header, images: Images) -> Estimate:
    """Return the bytes of the buffer: those that the engine reserves, up to those for the largest image.

    Each kind of encoder that the file has (images, sound) has a buffer of its own.
    """
    parts = [_images(header, images)] if _has(header, "vision") else []
    if _has(header, "audio"):
        low, high = _SOUND_SPREAD
        size = _layer(header, "audio", _SOUND, images.attention)
        parts.append(Estimate(low * size, size, high * size))
    return Estimate(sum(p.low for p in parts), sum(p.expected for p in parts), sum(p.high for p in parts))


def model_width(header: Header) -> int | None:
    """Return the embedding size of the models that a projector is for; None where that is not known here."""
    name, axis = _INTO_MODEL.get(_kind_name(header, "vision"), ("", 0))
    found = next((tensor.dims for tensor in header.tensors if tensor.name == name), ())
    return found[axis] if axis < len(found) else None


def kinds_of(header: Header) -> set[str]:
    """Return the kinds of projector in a file, one for each kind of encoder."""
    return {_kind_name(header, medium) for medium in ("vision", "audio") if _has(header, medium)} - {""}


def _images(header: Header, images: Images) -> Estimate:
    name, kind, (low, high) = _kind_name(header, "vision"), _kind(header), _SPREAD
    largest = image_tokens(header, images)
    if kind is None:
        first = _trained_side(header) ** 2
        most = first if name in _FIXED_SIZE else max(first, (_UNKNOWN * _merge(header, 2)) ** 2)
    else:
        a_token = _merge(header, kind.merge) ** 2
        warm_up = min(kind.warm_up, math.isqrt(largest) ** 2)
        first, most = warm_up * a_token, largest * a_token
    at_once = max(_BATCH_TOKENS // largest, 1) if name in _BATCHED else 1
    usual = _layer(header, "vision", first, images.attention)
    return Estimate(low * usual, usual, high * at_once * _layer(header, "vision", most, images.attention))


def _layer(header: Header, medium: str, n: int, attention: Attention) -> float:
    """The most that a layer over `n` patches holds at once, with the image itself.

    Residual, its norm, Q, K, V and one of them rotated; or the feed-forward part. Printed buffers are met to 8 %:
    tests/engine/memory/test_companions.py.
    """
    n_embd, n_ff = _size(header, medium, "embedding_length", 1024), _size(header, medium, "feed_forward_length", 4096)
    n_head = _size(header, medium, "attention.head_count", 16)
    gated = any(t.name.endswith(".ffn_gate.weight") for t in header.tensors)
    scores = 0 if attention == "flash" and n_embd // n_head in _FLASH_HEADS else n * n_head
    if attention == "heads" and n * scores >= _BY_HEAD_FROM:
        scores = n
    held = max(6 * n_embd + scores, (3 if gated else 1) * n_ff + 2 * n_embd)
    kept = n if _kind_name(header, medium) in _MASKED else 0
    if medium == "vision":
        kept += 3 * _patch(header) ** 2 + _features(header)
    return 4.0 * n * (held + kept)


def _features(header: Header) -> int:
    """Values a patch of layers whose outputs join the last one's (Qwen3-VL)."""
    layers = {t.name.split(".")[2] for t in header.tensors if t.name.startswith("v.deepstack.")}
    return len(layers) * _size(header, "vision", "projection_dim", 0) // _merge(header, 2) ** 2 if layers else 0


def _kind(header: Header) -> _Kind | None:
    """The kind with the limit in the file, if there is one; None for those of one size, and unknown ones."""
    name = _kind_name(header, "vision")
    kind = _KINDS.get(name)
    pixels = as_int(header.metadata.get("clip.vision.image_max_pixels"), 0)
    if kind is None or pixels <= 0:
        return kind
    tokens = pixels // (_patch(header) * _merge(header, kind.merge)) ** 2
    return kind._replace(largest=max(tokens, 1))


def _kind_name(header: Header, medium: str) -> str:
    found = header.metadata.get("clip.projector_type") or header.metadata.get(f"clip.{medium}.projector_type")
    return found if isinstance(found, str) else ""


def _has(header: Header, medium: str) -> bool:
    return f"clip.{medium}.embedding_length" in header.metadata


def _patch(header: Header) -> int:
    side = _size(header, "vision", "patch_size", 14)
    return side * _merge(header, 3) if _kind_name(header, "vision") == "gemma4uv" else side


def _merge(header: Header, usual: int) -> int:
    if usual == 1 and _kind_name(header, "vision") == "gemma4uv":  # its patches are merged ones already
        return 1
    keys = ("spatial_merge_size", "projector.scale_factor")
    found = next((v for key in keys if (v := header.metadata.get(f"clip.vision.{key}")) is not None), None)
    return min(max(as_int(found, usual), 1), 64)


def _trained_side(header: Header) -> int:
    return max(_size(header, "vision", "image_size", 448) // _patch(header), 1)


def _size(header: Header, medium: str, key: str, usual: int) -> int:
    return min(max(as_int(header.metadata.get(f"clip.{medium}.{key}"), usual), 1), _MOST)
