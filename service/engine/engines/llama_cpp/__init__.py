"""llama.cpp, as of its commit 0c1e57098 (September 2026): everything that is known of it and of no other engine."""

from service.engine.engines.llama_cpp.spec import SPEC

__all__ = ["SPEC"]
