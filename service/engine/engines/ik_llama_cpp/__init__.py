"""ik_llama.cpp, as of its commit 8337e4cd3 (August 2026): everything that is known of it and of no other engine."""

from __future__ import annotations

from service.engine.engines.tables import Architectures

ARCHITECTURES = Architectures(__name__)
