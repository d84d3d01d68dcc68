from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.engine.errors import InvalidHeader, InvalidInput, NotGguf, TruncatedHeader
from service.engine.model import build_model
from service.hub.errors import RepoTooLarge, RepoWithoutGguf
from service.hub.listing import ListingLimits
from service.hub.local import local_variants, read_local_header
from tests.models import build_header, write_gguf

MODEL = "Qwen3-0.6B"


def test_a_file_is_one_variant_whose_path_can_stand_in_a_command(tmp_path: Path) -> None:
    (path,) = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", MODEL, "q8_0")
    listing = local_variants(path)
    (variant,) = listing.variants
    assert (variant.name, variant.files[0].path, variant.n_bytes) == ("Q8_0", str(path), path.stat().st_size)
    assert (listing.repo, listing.revision) == (None, None)
    assert read_local_header(variant).tensors == build_header(MODEL, "q8_0").tensors


def test_any_shard_names_the_whole_set(tmp_path: Path) -> None:
    paths = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", MODEL, "q8_0", shards=3)
    write_gguf(tmp_path / "Qwen3-0.6B-Q4_0.gguf", MODEL, "q4_0")
    for path in paths:
        (variant,) = local_variants(path).variants
        assert [f.path for f in variant.files] == [str(p) for p in paths]
    model = build_model(read_local_header(variant))
    assert model.n_bytes == sum(t.nbytes for t in build_header(MODEL, "q8_0").tensors)


def test_a_folder_holds_variants_in_its_folders_and_other_files_apart(tmp_path: Path) -> None:
    (tmp_path / "Q4_0").mkdir()
    write_gguf(tmp_path / "Q4_0" / "Qwen3-0.6B-Q4_0.gguf", MODEL, "q4_0", shards=2)
    write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", MODEL, "q8_0")
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF")
    (tmp_path / "notes.txt").write_text("x")
    listing = local_variants(str(tmp_path))
    assert listing.names == ("Q4_0", "Q8_0")
    assert [(o.path, o.kind) for o in listing.other_files] == [(str(tmp_path / "mmproj-F16.gguf"), "mmproj")]


def test_a_set_with_a_missing_shard_is_no_variant(tmp_path: Path) -> None:
    first, second = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", MODEL, "q8_0", shards=2)
    second.unlink()
    with pytest.raises(RepoWithoutGguf):
        local_variants(first)


def test_a_path_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file") as caught:
        local_variants(tmp_path / "nothing.gguf")
    assert caught.value.field == "repo"


def test_an_empty_folder_has_no_gguf(tmp_path: Path) -> None:
    with pytest.raises(RepoWithoutGguf):
        local_variants(tmp_path)


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(RepoTooLarge):
        local_variants(tmp_path, ListingLimits(repo_files=3))


def test_damaged_files_are_named_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m-Q8_0.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(NotGguf, match=r"m-Q8_0\.gguf"):
        read_local_header(local_variants(path).variants[0])
    write_gguf(path, MODEL, "q8_0", sparse=False)
    with pytest.raises(TruncatedHeader, match=r"m-Q8_0\.gguf"):
        read_local_header(local_variants(path).variants[0])
    write_gguf(path, MODEL, "q8_0")
    with pytest.raises(InvalidHeader, match="larger than 1 MiB"):
        read_local_header(local_variants(path).variants[0], ListingLimits(header_bytes=1 << 20))


def test_a_file_that_goes_away_in_between_is_an_error_with_its_name(tmp_path: Path) -> None:
    (path,) = write_gguf(tmp_path / "m-Q8_0.gguf", MODEL, "q8_0")
    (variant,) = local_variants(path).variants
    path.unlink()
    with pytest.raises(InvalidInput, match=r"m-Q8_0\.gguf"):
        read_local_header(variant)


def test_an_empty_file_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "m-Q8_0.gguf"
    path.touch()
    with pytest.raises(TruncatedHeader):
        read_local_header(local_variants(path).variants[0])


@pytest.mark.parametrize(
    ("name", "what"), [("mmproj-F16.gguf", "--mmproj"), ("sql-lora-f16.gguf", "--lora"), ("imatrix.gguf", "importance")]
)
def test_a_file_that_goes_with_a_model_is_called_what_it_is(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(RepoWithoutGguf, match=what):
        local_variants(tmp_path / name)


def test_a_model_of_ollama_is_read_by_its_file_and_its_folder_names_that(tmp_path: Path) -> None:
    """Ollama keeps a model as `blobs/sha256-…`, and names it in a manifest."""
    (path,) = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", MODEL, "q8_0")
    blob = tmp_path / "models" / "blobs" / f"sha256-{'ab' * 32}"
    blob.parent.mkdir(parents=True)
    path.rename(blob)
    (blob.parent / f"sha256-{'cd' * 32}").write_text("{}")
    manifest = tmp_path / "models" / "manifests" / "registry.ollama.ai" / "library" / "qwen3" / "0.6b"
    manifest.parent.mkdir(parents=True)
    kind = "application/vnd.ollama.image."
    layers = [
        {"mediaType": f"{kind}model", "digest": f"sha256:{'ab' * 32}", "size": 1},
        {"mediaType": f"{kind}params", "digest": f"sha256:{'cd' * 32}", "size": 2},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    (variant,) = local_variants(blob).variants
    assert (variant.name, variant.files[0].path) == ("sha256-abababababab", str(blob))
    assert read_local_header(variant).tensors == build_header(MODEL, "q8_0").tensors
    for folder in (tmp_path, tmp_path / "models", blob.parent):
        with pytest.raises(RepoWithoutGguf, match=rf"{blob} \(qwen3:0\.6b\)$"):
            local_variants(folder)
    with pytest.raises(RepoWithoutGguf, match="is not a GGUF file"):
        local_variants(blob.parent / f"sha256-{'cd' * 32}")
