"""The download line and the model path belong together."""

from __future__ import annotations

import fnmatch
import shlex

from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.building import download, model_path

R1 = [f"IQ4_KS_R4/DeepSeek-R1-0528-IQ4_KS_R4-{i:05d}-of-00009.gguf" for i in range(1, 10)]


def test_shards_are_one_pattern_and_the_path_is_the_first_of_them() -> None:
    assert download("ubergarm/DeepSeek-R1-0528-GGUF", R1, "~/models", revision="abc123") == (
        "hf download ubergarm/DeepSeek-R1-0528-GGUF --include 'IQ4_KS_R4/DeepSeek-R1-0528-IQ4_KS_R4-*-of-00009.gguf' "
        "--revision abc123 --local-dir ~/models/ubergarm/DeepSeek-R1-0528-GGUF"
    )
    assert model_path("ubergarm/DeepSeek-R1-0528-GGUF", R1[::-1], "~/models") == (
        "~/models/ubergarm/DeepSeek-R1-0528-GGUF/IQ4_KS_R4/DeepSeek-R1-0528-IQ4_KS_R4-00001-of-00009.gguf"
    )


def test_files_that_are_no_set_are_named_one_by_one() -> None:
    line = download("a/b", ["x.gguf", "y.gguf"], "/m/")
    assert line == "hf download a/b x.gguf y.gguf --local-dir /m/a/b"


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="/"), min_size=1, max_size=30)
)
def test_the_pattern_matches_the_file_and_no_glob_of_its_name(name: str) -> None:
    words = shlex.split(download("a/b", [f"{name}.gguf"], "models"))
    assert fnmatch.fnmatchcase(f"{name}.gguf", words[words.index("--include") + 1])
    assert not fnmatch.fnmatchcase(f"{name}other.gguf", words[words.index("--include") + 1])
