"""The architectures that llama.cpp knows, and what it does with some of them."""

from __future__ import annotations

from service.engine.engines.tables import Architectures

ARCHITECTURES = Architectures("service.engine.engines.llama_cpp")
