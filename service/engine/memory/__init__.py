"""Memory of every device from a header and flags: placement, cache, compute buffers, and what no engine prints.

The compute buffer of an engine is the high-water mark of a deterministic procedure: the graph of the worst-case batch
(`graphs/`), a device for every node and copies between devices (`scheduler`), and one best-fit arena for each device
(`allocator`). All three are replayed here.
"""

from service.engine.memory.companions import Companion, draft_model, next_token_context, projector
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.least import LeastBytes, least_memory
from service.engine.memory.predict import as_started, predict_memory
from service.engine.memory.report import report
from service.engine.run.overrides import matching_names
from service.engine.run.placement import place

__all__ = [
    "Companion",
    "DeviceBytes",
    "LeastBytes",
    "Memory",
    "as_started",
    "draft_model",
    "least_memory",
    "matching_names",
    "next_token_context",
    "place",
    "predict_memory",
    "projector",
    "report",
]
