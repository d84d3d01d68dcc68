"""GGUF: what a file says of itself before its weights begin."""

from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor, merge_shards
from service.engine.gguf.jump import Doubt, LargeArray
from service.engine.gguf.parser import MAX_HEADER_BYTES, MAX_KEPT, MAX_TEXT_BYTES, HeaderParser, parse_header
from service.engine.gguf.window import NeedMore

__all__ = [
    "MAX_HEADER_BYTES",
    "MAX_KEPT",
    "MAX_TEXT_BYTES",
    "ArraySummary",
    "Doubt",
    "Header",
    "HeaderParser",
    "LargeArray",
    "MetadataValue",
    "NeedMore",
    "Tensor",
    "merge_shards",
    "parse_header",
]
