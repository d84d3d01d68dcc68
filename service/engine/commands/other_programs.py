"""Programs that run models by options of their own: their commands are named, and never read as llama.cpp's."""

from __future__ import annotations

import re
from collections.abc import Sequence

# By the word that starts them, or the module behind `python -m`.
_NAMES = {
    "ollama": "Ollama",
    "lms": "LM Studio",
    "ramalama": "RamaLama",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "aphrodite": "Aphrodite",
    "lmdeploy": "LMDeploy",
    "mlx_lm": "MLX LM",
    "mlx_vlm": "MLX VLM",
    "exllamav2": "ExLlamaV2",
    "exllamav3": "ExLlamaV3",
    "tabbyapi": "TabbyAPI",
    "ktransformers": "KTransformers",
    "text-generation-launcher": "TGI",
    "local-ai": "LocalAI",
    "llama_cpp": "llama-cpp-python",
}
_PYTHON = re.compile(r"(?:python|py)[0-9.]*|uv|uvx|pipx")
_WEBUI = ("server.py", "--loader")  # text-generation-webui (README, "Command-line flags")


def other_program(words: Sequence[str]) -> str | None:
    """Return the name of the program that a command starts where it is a known one that is none of llama.cpp's."""
    bases = [re.split(r"[/\\\\]", word)[-1].lower().removesuffix(".exe") for word in words]
    start = next((i for i, word in enumerate(words) if "=" not in word and bases[i] not in _LAUNCHERS), None)
    if start is None:
        return None
    if bases[start] in _NAMES:
        return _NAMES[bases[start]]
    if not _PYTHON.fullmatch(bases[start]):
        return None
    if _WEBUI[0] in bases and _WEBUI[1] in words:
        return "text-generation-webui"
    behind = (re.split(r"[.\\s]", word)[0] for word in bases[start + 1 : start + 4])
    return next((_NAMES[word] for word in behind if word in _NAMES), None)


_LAUNCHERS = frozenset(("sudo", "env", "exec", "nohup", "nice", "time", "$", ">"))
