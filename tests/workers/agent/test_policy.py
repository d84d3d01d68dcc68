"""The policy file has the last word: read strictly, safe where it says nothing."""

from __future__ import annotations

import tomllib
from datetime import time
from pathlib import Path

import msgspec
import pytest

from workers.agent.policy import (
    AskerPolicy,
    DownloadPolicy,
    EnginePolicy,
    InvalidPolicy,
    ModelPolicy,
    Policy,
    allows_engine,
    allows_gpu,
    allows_repo,
    as_downloads,
    decode_policy,
    example,
    is_within_hours,
    log_path,
    pause_path,
    read_policy,
)


def _policy(text: str) -> Policy:
    return decode_policy(text.encode(), "policy.toml")


def test_an_empty_file_allows_no_engine_folder_no_model_and_no_download() -> None:
    policy = _policy("")
    assert policy == Policy()
    assert policy.engines.folders == policy.models.folders == policy.downloads.repos == ()
    assert not allows_repo(policy, "ubergarm/DeepSeek-R1-GGUF")


def test_the_example_is_the_default_and_shows_every_setting() -> None:
    assert _policy(example()) == Policy()
    for struct in (Policy, EnginePolicy, ModelPolicy, DownloadPolicy, AskerPolicy):
        for field in struct.__struct_fields__:
            assert f"{field} = " in example() or f"[{field}]" in example(), field


def test_every_setting_that_the_example_comments_out_can_be_put_in_force() -> None:
    lines = example().splitlines()
    commented = [line.partition("#")[2].strip() for line in lines if line.startswith("# ") and " = " in line]
    assert len(commented) >= 12
    for line in commented:
        name = line.partition(" = ")[0]
        section = next((s for s in ("engines", "models", "downloads", "askers") if name in _fields(s)), None)
        table = f"[{section}]\n{line}" if section else line
        if name == "repos" and "[]" not in line:
            table += '\nmax_gib = 1\nfolder = "~/models"'
        if section == "downloads":
            table += '\n[models]\nfolders = ["~/models"]'
        assert tomllib.loads(table)
        _policy(table)


def _fields(section: str) -> tuple[str, ...]:
    structs = {"engines": EnginePolicy, "models": ModelPolicy, "downloads": DownloadPolicy, "askers": AskerPolicy}
    return structs[section].__struct_fields__


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_minuts = 5", "max_minuts"),
        ("max_minutes = 0", "max_minutes"),
        ('max_minutes = "5"', "max_minutes"),
        ('hours = ["25:00-07:00"]', "hours[0]"),
        ('hours = "22:00-07:00"', "hours"),
        ('[engines]\nfolders = ["bin"]', "engines.folders[0]"),
        ('[engines]\nsha256 = ["abc"]', "engines.sha256[0]"),
        ('[engines]\nfolder = "/opt"', "engines.folder"),
        ('[downloads]\nrepos = ["*"]\nmax_gib = 5\nfolder = "/m"', "downloads.repos[0]"),
        ('[downloads]\nrepos = ["a/b"]', "downloads.folder"),
        ('[downloads]\nfolder = "/m"\n[models]\nfolders = ["/models"]', "one of models.folders"),
        ('gpus = ["MIG-1"]', "gpus[0]"),
        ("gpus = [-1]", "gpus[0]"),
        ("max_temperature = nan", "max_temperature"),
        ("= 1", "not TOML"),
        ("[[[[", "not TOML"),
    ],
)
def test_a_wrong_line_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        _policy(text)
    assert says in caught.value.detail
    assert "policy.toml" in caught.value.detail


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicy, match="No such file"):
        read_policy(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_bytes(b"#" * (1 << 20))
    with pytest.raises(InvalidPolicy, match="larger than"):
        read_policy(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("hours", "now", "within"),
    [
        ([], "12:00", True),
        (["22:00-07:00"], "23:30", True),
        (["22:00-07:00"], "06:59", True),
        (["22:00-07:00"], "07:00", False),
        (["22:00-07:00"], "21:59", False),
        (["09:00-10:00", "12:00-13:00"], "12:30", True),
        (["09:00-10:00", "12:00-13:00"], "10:30", False),
        (["08:00-08:00"], "03:00", True),
    ],
)
def test_hours_are_spans_of_local_time_that_may_go_over_midnight(hours: list[str], now: str, within: bool) -> None:
    policy = msgspec.convert({"hours": hours}, Policy)
    assert is_within_hours(policy, time.fromisoformat(now)) is within


def test_an_owner_is_allowed_whole_and_a_repo_by_name() -> None:
    downloads = '[downloads]\nrepos = ["ubergarm/*", "Unsloth/Qwen3-GGUF"]\nmax_gib = 500\nfolder = "~/m/x"\n'
    policy = _policy(downloads + '[models]\nfolders = ["~/m"]')
    assert allows_repo(policy, "ubergarm/anything")
    assert allows_repo(policy, "unsloth/qwen3-gguf")
    assert not allows_repo(policy, "unsloth/other")
    assert not allows_repo(policy, "ubergarmx/anything")
    assert as_downloads(policy).max_gib == 500


def test_engines_by_hash_and_cards_by_number_or_uuid() -> None:
    policy = _policy(f'gpus = [0, "GPU-0a1b2c3d-0000-1111-2222-333344445555"]\n[engines]\nsha256 = ["{"a" * 64}"]')
    assert allows_engine(policy, "a" * 64)
    assert not allows_engine(policy, "b" * 64)
    assert allows_engine(Policy(), "b" * 64)
    assert allows_gpu(policy, 0, None)
    assert allows_gpu(policy, 1, "GPU-0A1B2C3D-0000-1111-2222-333344445555")
    assert not allows_gpu(policy, 1, "GPU-ffffffff-0000-1111-2222-333344445555")
    assert allows_gpu(Policy(), 5, None)


def test_pause_and_log_lie_in_the_state_folder_unless_the_policy_says_another(tmp_path: Path) -> None:
    assert pause_path(Policy(), tmp_path) == tmp_path / "pause"
    assert log_path(Policy(), tmp_path) == tmp_path / "ran.jsonl"
    assert pause_path(Policy(pause_file="/run/p"), tmp_path) == Path("/run/p")
