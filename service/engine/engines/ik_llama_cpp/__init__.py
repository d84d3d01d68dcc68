"""ik_llama.cpp, as of its commit 8337e4cd3 (August 2026): everything that is known of it and of no other engine."""

from service.engine.engines.ik_llama_cpp.spec import SPEC

__all__ = ["SPEC"]
