"""What files of a repo are: by size next to the others, then by name and folder, in any case; and by their header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.engine.gguf.header import Header, Tensor, what_else
from service.hub.errors import RepoWithoutGguf
from service.hub.listing import RepoFile
from service.hub.local import local_variants
from service.hub.variants import find_variants

GIB = 1 << 30
CORPUS = Path(__file__).parent.parent / "recorded" / "hub" / "filenames.jsonl"


def found(sizes: Mapping[str, int | None], repo: str = "Model-GGUF") -> tuple[list[str], dict[str, str]]:
    variants, others = find_variants([RepoFile(path, size) for path, size in sizes.items()], repo)
    return sorted(file.path for one in variants for file in one.files), {one.path: one.kind for one in others}


def test_published_names_are_what_they_were_judged_to_be() -> None:
    for line in CORPUS.read_text().splitlines():
        published = json.loads(line)
        expected = published.get("others", {})
        models, others = found(dict.fromkeys(published["files"]), published["repo"].partition("/")[2])
        assert others == expected, published["repo"]
        assert models == sorted(set(published["files"]) - set(expected)), published["repo"]


def test_a_model_with_next_token_layers_is_a_model_and_the_layers_alone_are_a_draft_by_size() -> None:
    full = {
        "A-Q4_K_M.gguf": 20 * GIB,
        "A-Q8_0.gguf": 40 * GIB,
        "A-MTP-Q4_K_M.gguf": 21 * GIB,
        "MTP/A-Q4_K_M.gguf": 21 * GIB,
    }
    assert found(full) == (sorted(full), {})
    alone = {"A-Q4_K_M.gguf": 20 * GIB, "A-MTP-Q8_0.gguf": GIB, "MTP/A-Q8_0.gguf": GIB, "mtp-A.gguf": GIB}
    assert found(alone)[1] == dict.fromkeys(list(alone)[1:], "draft")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("DRAFT/A-0.6B-Q4_0.GGUF", "draft"), ("A-Eagle3-F16.gguf", "draft"), ("A-DFlash-Q8_0.gguf", "draft"),
        ("A-draft-0.6B-Q4_0.gguf", "draft"), ("MMPROJ-A-F16.GGUF", "mmproj"), ("mmproj/A-BF16.gguf", "mmproj"),
        ("vision/A-vision-F16.gguf", "mmproj"), ("imatrix.gguf", "imatrix"), ("A.imatrix.gguf", "imatrix"),
        ("imatrix-A-Q8_0.gguf", "imatrix"), ("Imatrix/A.gguf", "imatrix"), ("A.IMATRIX.DAT", "imatrix"),
        ("LoRA/A-F16.gguf", "lora"), ("ggml-vocab-a.gguf", "vocab"), ("A-Q4_0.gguf.part1of2", "pieces"),
        ("A-Q4_0.GGUF.Part2of2", "pieces"), ("A-Q4_0.gguf-split-a", "pieces"), ("A-Q4_0.gguf.001", "pieces"),
        ("A-Q4_0.gguf.aa", "pieces"), ("config.json", "other"), ("A.gguf.md5", "other"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_known_by_name_and_folder_in_any_case(path: str, kind: str) -> None:
    assert found({"A-Q4_K_M.gguf": 20 * GIB, path: GIB}) == (["A-Q4_K_M.gguf"], {path: kind})


@pytest.mark.parametrize("path", ["A-EAGLE-8B-Q4_K_M.gguf", "A-Draft-Q4_K_M.gguf", "A-lora-merged-Q4_K_M.gguf"])
def test_what_is_as_large_as_the_models_is_a_model_whatever_its_name(path: str) -> None:
    assert found({"A-Q4_K_M.gguf": 20 * GIB, path: 20 * GIB})[1] == {}


def test_an_imatrix_in_a_repo_named_after_it_is_none_of_its_models() -> None:
    assert found({"imatrix.gguf": None, "A-Q4_K_M-imat.gguf": None}, "A-GGUF-IQ-Imatrix")[1] == {
        "imatrix.gguf": "imatrix"
    }
    assert found({"A-IQ2XXS-w2Q2K-v2-imatrix-fixed.gguf": None})[1] == {}


def test_a_suffix_in_capitals_is_seen_and_its_shards_are_one_variant(tmp_path: Path) -> None:
    paths = {"A-Q8_0-00001-of-00002.GGUF": GIB, "A-Q8_0-00002-of-00002.GGUF": GIB, "A-Q4_0.Gguf": GIB}
    variants, others = find_variants([RepoFile(path, size) for path, size in paths.items()], "A-GGUF")
    assert {one.name: len(one.files) for one in variants} == {"Q4_0": 1, "Q8_0": 2}
    assert others == ()
    for path in paths:
        (tmp_path / path).write_bytes(b"GGUF")
    assert len(local_variants(tmp_path).variants) == 2
    assert len(local_variants(tmp_path / "A-Q8_0-00001-of-00002.GGUF").variants[0].files) == 2


def test_a_folder_of_drafters_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "A-DFlash-Q8_0.gguf").write_bytes(b"GGUF")
    with pytest.raises(RepoWithoutGguf):
        local_variants(tmp_path)


def header(tensors: tuple[str, ...] = ("blk.0.attn_q.weight",), **metadata: str | int) -> Header:
    keys = {name.replace("__", "."): value for name, value in metadata.items()}
    return Header(dict(keys), tuple(Tensor(name, "f32", (32,), 0, 128) for name in tensors), 0)


def test_a_header_says_what_is_no_language_model() -> None:
    assert what_else(header(general__architecture="llama")) is None
    assert what_else(header(general__type="model", general__architecture="llama")) is None
    assert "projector" in str(what_else(header(general__architecture="clip")))
    assert "matrix" in str(what_else(header(general__type="imatrix")))
    assert "matrix" in str(what_else(header(imatrix__chunk_count=3)))
    assert "adapter" in str(what_else(header(general__type="adapter", general__architecture="llama")))
    assert "EAGLE" in str(what_else(header(general__architecture="eagle3")))
    assert "vocabulary" in str(what_else(header((), general__architecture="llama", tokenizer__ggml__model="gpt2")))
    layers = ("blk.61.nextn.eh_proj.weight", "blk.61.attn_q.weight", "token_embd.weight")
    alone = header(layers, general__architecture="qwen35", qwen35__nextn_predict_layers=1)
    assert "next-token" in str(what_else(alone))
