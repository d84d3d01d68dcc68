"""Operations of ggml as the scheduler and the allocator see them.

Sources: ggml/src/ggml-alloc.c (ggml_op_can_inplace) and ggml-backend.cpp (ggml_is_view_op) of both engines.
"""

from __future__ import annotations

NONE = "NONE"
VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})

IN_PLACE = frozenset(
    {"SCALE", "ADD", "ADD_ID", "SUB", "MUL", "DIV", "SQR", "SQRT", "LOG", "UNARY", "ROPE", "RMS_NORM", "SOFT_MAX"}
)
MIN_OFFLOAD_BATCH = 32  # tokens from which weights in RAM are copied to a GPU: both engines' ggml-cuda.cu
