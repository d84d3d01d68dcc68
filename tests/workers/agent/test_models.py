"""Models of the policy's folders: told by header at once and by content in time; hostile files are left out."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

import msgspec
import pytest

from service.engine.gguf.header import Tensor
from service.engine.gguf.write import header_bytes, tokenizer
from workers.agent.models import Hashes, content_sha256, find_models, hash_contents, header_sha256, page_cache
from workers.agent.policy import ModelPolicy, Policy

HEADER = header_bytes({"general.architecture": "llama"}, [Tensor("output.weight", "F32", (32, 2), 0, 256)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    (path / "repo").mkdir(parents=True)
    (path / "repo" / "a.gguf").write_bytes(HEADER + bytes(256))
    return path


@pytest.fixture
def policy(folder: Path) -> Policy:
    return Policy(models=ModelPolicy(folders=(str(folder),)))


def test_a_model_is_told_by_name_size_and_header(policy: Policy, folder: Path, tmp_path: Path) -> None:
    (model,) = find_models(policy, Hashes(tmp_path / "models.json"))
    assert model.path == folder / "repo" / "a.gguf"
    assert (model.file.name, model.file.size, model.file.sha256) == ("a.gguf", len(HEADER) + 256, None)
    assert model.file.header_sha256 == hashlib.sha256(HEADER).hexdigest()


def test_a_header_longer_than_one_read_is_read_whole(tmp_path: Path) -> None:
    header = header_bytes({"general.architecture": "qwen2", **tokenizer(200_000)}, [])
    assert len(header) > 4 << 20
    (tmp_path / "a.gguf").write_bytes(header)
    assert header_sha256(tmp_path / "a.gguf", len(header)) == hashlib.sha256(header).hexdigest()


def test_what_is_no_model_is_left_out(policy: Policy, folder: Path, tmp_path: Path) -> None:
    (folder / "empty.gguf").touch()
    (folder / "text.gguf").write_text("no model")
    (folder / "cut.gguf").write_bytes(HEADER[:60])
    (folder / "counts.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 1 << 60, 1 << 60) + bytes(100))
    (folder / "short.gguf").write_bytes(HEADER)  # the tensor's data is missing
    (folder / "notes.txt").write_bytes(HEADER)
    (folder / "folder.gguf").mkdir()
    (folder / "line\nend.gguf").write_bytes(HEADER + bytes(256))
    (folder / "gone.gguf").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.gguf")
    assert [model.file.name for model in find_models(policy, Hashes(tmp_path / "models.json"))] == ["a.gguf"]


def test_a_link_of_the_hubs_cache_is_a_model(policy: Policy, folder: Path, tmp_path: Path) -> None:
    (folder / "link.gguf").symlink_to(folder / "repo" / "a.gguf")
    models = find_models(policy, Hashes(tmp_path / "models.json"))
    assert [model.file.name for model in models] == ["link.gguf", "a.gguf"]


def test_contents_are_hashed_one_at_a_time_and_known_at_the_next_start(
    policy: Policy, folder: Path, tmp_path: Path
) -> None:
    (folder / "b.gguf").write_bytes(HEADER + b"x" * 256)
    hashes = Hashes(tmp_path / "models.json")
    one = hash_contents(find_models(policy, hashes), hashes, lambda: False)
    assert [model.file.sha256 is None for model in one] == [False, True]
    both = hash_contents(one, hashes, lambda: False)
    assert [model.file.sha256 for model in both] == [
        hashlib.sha256(HEADER + b"x" * 256).hexdigest(),
        hashlib.sha256(HEADER + bytes(256)).hexdigest(),
    ]
    assert hash_contents(both, hashes, lambda: False) == both
    assert find_models(policy, Hashes(tmp_path / "models.json")) == both


def test_a_file_that_changed_is_hashed_again(policy: Policy, folder: Path, tmp_path: Path) -> None:
    hashes = Hashes(tmp_path / "models.json")
    hash_contents(find_models(policy, hashes), hashes, lambda: False)
    path = folder / "repo" / "a.gguf"
    path.write_bytes(HEADER + b"y" * 256)
    os.utime(path, ns=(1, 1))
    (model,) = find_models(policy, hashes)
    assert model.file.sha256 is None


def test_hashing_stops_when_asked_and_keeps_nothing(policy: Policy, tmp_path: Path) -> None:
    hashes = Hashes(tmp_path / "models.json")
    models = find_models(policy, hashes)
    assert hash_contents(models, hashes, lambda: True) == models
    assert content_sha256(models[0].path, lambda: True) is None
    assert content_sha256(tmp_path / "nowhere.gguf") is None


@pytest.mark.parametrize("text", [b"no JSON", b"{}", b'{"a": {"size": "x"}}', b""])
def test_kept_hashes_that_cannot_be_read_are_made_again(policy: Policy, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "models.json").write_bytes(text)
    assert len(find_models(policy, Hashes(tmp_path / "models.json"))) == 1


def test_nothing_of_a_model_that_is_sent_says_where_it_lies(policy: Policy, folder: Path, tmp_path: Path) -> None:
    (model,) = find_models(policy, Hashes(tmp_path / "models.json"))
    assert b"/" not in msgspec.json.encode(model.file)


def test_a_file_just_written_is_in_the_page_cache_and_one_dropped_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    with path.open("wb") as file:
        file.write(bytes(8 << 20))
        file.flush()
        os.fsync(file.fileno())
        assert page_cache([path]) == "warm"
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache([path]) == "warm":
        pytest.skip("this file system keeps its pages (tmpfs)")
    assert page_cache([path]) == "cold"
    assert content_sha256(path) == hashlib.sha256(bytes(8 << 20)).hexdigest()
    assert page_cache([path]) == "cold"
    path.read_bytes()
    assert page_cache([path]) == "warm"
    assert page_cache([path, tmp_path / "nowhere"]) == "unknown"
    assert page_cache([]) == "unknown"
