"""Findings about commands of ik_llama.cpp alone."""

from __future__ import annotations

from service.engine.engines.ik_llama_cpp.rules import caches, graph_split, offloading, options
from service.engine.rules.rule import Rule, rules_in

RULES: tuple[Rule, ...] = rules_in(options, graph_split, caches, offloading)
