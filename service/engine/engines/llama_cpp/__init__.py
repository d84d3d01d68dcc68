"""llama.cpp, as of its commit 0c1e57098 (September 2026): everything that is known of it and of no other engine."""

from __future__ import annotations

from service.engine.engines.tables import Architectures

ARCHITECTURES = Architectures(__name__)
