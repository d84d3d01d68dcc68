"""Repos as people paste them: each resolves, or says where to look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.hub.references import parse_repo_reference

DATA = Path(__file__).parents[1] / "data" / "repos_as_pasted.jsonl"
PASTED: list[dict[str, Any]] = [msgspec.json.decode(line) for line in DATA.read_bytes().splitlines()]


@pytest.mark.parametrize("pasted", PASTED, ids=lambda row: row["text"][:60])
def test_a_repo_is_found_in_what_is_pasted(pasted: dict[str, Any]) -> None:
    if pasted["repo"] is None:
        with pytest.raises(InvalidInput) as refused:
            parse_repo_reference(pasted["text"])
        assert pasted["says"] in refused.value.detail
        return
    found = parse_repo_reference(pasted["text"])
    assert (found.repo, found.variant, found.file) == (pasted["repo"], pasted["variant"], pasted["file"])


@pytest.mark.parametrize(
    "text",
    [
        "unsloth/A-GGUF and bartowski/B-GGUF",
        "is 5 t/s ok",
        "llama-server -m models/foo-Q4_K_M.gguf -ctk q8_0",
        "https://evil.example/?x=https://hf.co/a/b",
        "see https://huggingface.co/datasets/a/b",
    ],
)
def test_two_repos_or_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_repo_reference(text)


def test_a_cache_type_or_a_projector_is_no_variant() -> None:
    found = parse_repo_reference("llama-server -hf a/b-GGUF --mmproj x-F16.gguf -ctk q8_0 -ctv q8_0")
    assert (found.repo, found.variant, found.file) == ("a/b-GGUF", None, None)
