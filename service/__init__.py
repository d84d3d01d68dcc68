"""Offload Advisor: where to put a GGUF model on your hardware, and why."""

__version__ = "0.1.0"
