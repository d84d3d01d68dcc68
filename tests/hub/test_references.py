from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.errors import InvalidInput
from service.hub.references import RepoReference, checked_revision, parse_repo_reference

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ubergarm/DeepSeek-R1-0528-GGUF", RepoReference("ubergarm", "DeepSeek-R1-0528-GGUF")),
        ("  a_b/c.d-E_9  ", RepoReference("a_b", "c.d-E_9")),
        ("a/b:IQ4_KS_R4", RepoReference("a", "b", variant="IQ4_KS_R4")),
        ("hf.co/a/b:UD-Q4_K_XL", RepoReference("a", "b", variant="UD-Q4_K_XL")),
        ("a/b/", RepoReference("a", "b")),
        ("a/b/c.gguf", RepoReference("a", "b", file="c.gguf")),
        ("a/b/x/c.gguf", RepoReference("a", "b", file="x/c.gguf")),
        ("huggingface.co/a/b", RepoReference("a", "b")),
        ("HTTPS://huggingface.co/a/b", RepoReference("a", "b")),
        ("hf://a/b", RepoReference("a", "b")),
        ("hf://models/a/b@main/x/c.gguf", RepoReference("a", "b", "main", file="x/c.gguf")),
        ("-hf a/b:Q4_K_M", RepoReference("a", "b", variant="Q4_K_M")),
        ("llama-server -hf a/b:Q4_K_M", RepoReference("a", "b", variant="Q4_K_M")),
        ("--hf-repo=a/b", RepoReference("a", "b")),
        ("ollama run hf.co/a/b:Q8_0", RepoReference("a", "b", variant="Q8_0")),
        ("hf download a/b", RepoReference("a", "b")),
        ("`a/b`", RepoReference("a", "b")),
        ("[a/b](https://huggingface.co/a/b)", RepoReference("a", "b")),
        ("<https://huggingface.co/a/b>", RepoReference("a", "b")),
        ("a/b UD-Q4_K_XL", RepoReference("a", "b", variant="UD-Q4_K_XL")),
        ("a/b/UD-Q4_K_XL", RepoReference("a", "b", variant="UD-Q4_K_XL")),
        ("a/b@main", RepoReference("a", "b", "main")),
        (f"a/b@{SHA}", RepoReference("a", "b", SHA)),
        ("a/b@main:Q8_0", RepoReference("a", "b", "main", variant="Q8_0")),
        ("hf download a/b --include '*UD-Q4_K_XL*' --local-dir x", RepoReference("a", "b", variant="UD-Q4_K_XL")),
        ('hf download a/b --include "Q8_0/*.gguf"', RepoReference("a", "b", variant="Q8_0")),
        ("hf download a/b --include '*.gguf'", RepoReference("a", "b")),
        ("huggingface-cli download a/b m-Q8_0.gguf --local-dir .", RepoReference("a", "b", file="m-Q8_0.gguf")),
        ("git clone https://huggingface.co/a/b", RepoReference("a", "b")),
        ("git lfs clone https://huggingface.co/a/b.git", RepoReference("a", "b")),
        ("~/.cache/huggingface/hub/models--a--b/snapshots/12/", RepoReference("a", "b")),
        ("https://hf-mirror.com/a/b/tree/main/Q8_0", RepoReference("a", "b", "main", file="Q8_0")),
        ("a/b@q4_k_m", RepoReference("a", "b", variant="q4_k_m")),
        ("o" * 96 + "/" + "n" * 96, RepoReference("o" * 96, "n" * 96)),
        ("https://huggingface.co/a/b", RepoReference("a", "b")),
        ("https://huggingface.co/a/b/", RepoReference("a", "b")),
        ("http://hf.co/a/b/tree/main", RepoReference("a", "b", "main")),
        ("https://HF.co/a/b:Q8_0", RepoReference("a", "b", variant="Q8_0")),
        ("https://huggingface.co/a/b/tree/main/IQ2_K_R4", RepoReference("a", "b", "main", file="IQ2_K_R4")),
        ("https://huggingface.co/a/b/blob/v1.0/x/c.gguf", RepoReference("a", "b", "v1.0", file="x/c.gguf")),
        (f"https://hf.co/a/b/resolve/{SHA}/c.gguf?download=true", RepoReference("a", "b", SHA, file="c.gguf")),
        ("https://hf.co/a/b/tree/refs%2Fpr%2F7", RepoReference("a", "b", "refs/pr/7")),
        ("https://hf.co/a/b/blob/refs/pr/7/c.gguf", RepoReference("a", "b", "refs/pr/7", file="c.gguf")),
        ("https://hf.co/a/b/discussions/3", RepoReference("a", "b")),
        ("https://hf.co/a/b?show_file_info=UD-Q4%2Fc.gguf", RepoReference("a", "b", file="UD-Q4/c.gguf")),
        ("https://hf.co/a/b/tree/main?show_file_info=c.gguf", RepoReference("a", "b", "main", file="c.gguf")),
    ],
)
def test_every_way_of_naming_a_repo_is_understood(text: str, expected: RepoReference) -> None:
    assert parse_repo_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "gpt2", "a/b/c", "a/b//", "a/b/../c.gguf", "/a/b", "a//b", "../etc", "a/..", "a/b..c", "a/b--c", "-a/b",
        "a/b.", "a/b.git", "a/b:",
        "a/b:..", "a/b:x y", "a b/c", "a/b\nc", "a/b\x00c", "a/é", "a/" + "b" * 97, "qwen3 235b", "hf://a",
        "hf://a/b/../c", "x" * 3000, "ftp://hf.co/a/b",
        "https://evil.example/a/b", "https://huggingface.co.evil.example/a/b",
        "https://huggingface.co@evil.example/a/b",
        "https://user@huggingface.co/a/b", "https://huggingface.co:8443/a/b", "https://huggingface.co/a",
        "https://huggingface.co/datasets/a/b", "https://huggingface.co/spaces/a/b",
        "https://huggingface.co/api/models/a/b",
        "https://hf.co/a/b/blob/main/../../x", "https://hf.co/a/b/blob/main/%2e%2e/x", "https://hf.co/a/b/settings",
        "https://hf.co/a/b/tree", "https://hf.co/a/b/tree/..", "https://hf.co/a/b/blob/main/%00", "https://[::1/a/b",
        "https://hf.co/a/b?" + "&".join(["show_file_info=x"] * 40), "https://169.254.169.254/a/b", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_repo_reference(text)
    assert caught.value.field == "repo"
    assert "OWNER/NAME" in caught.value.detail


@given(
    st.text(max_size=120)
    | st.builds("{}{}".format, st.sampled_from(("", "https://hf.co/")), st.text("abz./:%-", min_size=1, max_size=80))
)
def test_no_text_gives_a_reference_that_leads_elsewhere(text: str) -> None:
    try:
        found = parse_repo_reference(text)
    except InvalidInput:
        return
    assert found.repo.count("/") == 1
    for part in (found.owner, found.name, found.revision or "", found.variant or "", found.file or ""):
        assert ".." not in part.split("/")
        assert part.isprintable()
        assert not part.startswith("/")
    assert parse_repo_reference(found.repo) == RepoReference(found.owner, found.name)


@given(st.from_regex(r"[A-Za-z0-9]{1,20}/[A-Za-z0-9]{1,20}(:[A-Za-z0-9_]{1,12})?", fullmatch=True))
def test_names_come_back_as_they_were_written(text: str) -> None:
    found = parse_repo_reference(text)
    assert text == found.repo + (f":{found.variant}" if found.variant else "")


def test_only_a_whole_commit_is_pinned() -> None:
    assert RepoReference("a", "b", SHA).is_pinned
    assert not RepoReference("a", "b", "main").is_pinned
    assert not RepoReference("a", "b", SHA[:12]).is_pinned


@pytest.mark.parametrize("revision", ["", "-x", "a..b", "a//b", "a b", "a/", "é", "x" * 200, "a\n"])
def test_a_revision_that_git_cannot_have_is_refused(revision: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_revision(revision)
    assert caught.value.field == "revision"
