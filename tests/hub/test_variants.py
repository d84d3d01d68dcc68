from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.errors import InvalidInput, UnknownVariant
from service.hub.errors import RepoTooLarge
from service.hub.listing import ListingLimits, RepoFile, RepoListing, Variant
from service.hub.references import parse_repo_reference
from service.hub.variants import choose, find_variants, incomplete_sets, shard_names


def names(*paths: str, model: str = "Model-GGUF") -> list[str]:
    variants, _ = find_variants([RepoFile(path, i) for i, path in enumerate(paths)], model)
    return [v.name for v in variants]


def kinds(*paths: str, model: str = "Model-GGUF") -> dict[str, str]:
    _, others = find_variants([RepoFile(path, 1) for path in paths], model)
    return {other.path: other.kind for other in others}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("IQ4_KS_R4/DeepSeek-R1-0528-IQ4_KS_R4.gguf", "IQ4_KS_R4"),
        ("UD-Q4_K_XL/Qwen3-235B-A22B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-120b-mxfp4.gguf", "MXFP4"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Meta-Llama-3-8B.Q6_K.gguf", "Q6_K"),
        ("Qwen3-235B-A22B-mix-IQ3_K.gguf", "mix-IQ3_K"),
        ("Kimi-Dev-72B-smol-IQ3_K.gguf", "smol-IQ3_K"),
        ("Model.i1-IQ2_XXS.gguf", "i1-IQ2_XXS"),
        ("DeepSeek-R1-0528-DQ4_K_R4.gguf", "DQ4_K_R4"),
        ("BF16/Model-BF16.gguf", "BF16"),
        ("Q8_0/model.gguf", "Q8_0"),
        ("Model-Q4_0_4_8.gguf", "Q4_0_4_8"),
        ("Model-Q4_K_M-fixed.gguf", "Q4_K_M-fixed"),
        ("Model-TQ1_0.gguf", "TQ1_0"),
        ("Model.gguf", "Model"),
        ("Model-6.2478bpw.gguf", "6.2478bpw"),
    ],
)
def test_a_variant_is_called_by_its_quantisation(path: str, name: str) -> None:
    assert names(path) == [name]


def test_two_models_in_one_repo_keep_their_own_names() -> None:
    assert names("A-Q4_K_M.gguf", "B-Q4_K_M.gguf", "B-Q8_0.gguf") == ["A-Q4_K_M", "B-Q4_K_M", "Q8_0"]
    assert names("long/m-Q4_0.gguf", "short/m-Q4_0.gguf") == ["long-m-Q4_0", "short-m-Q4_0"]


def test_shards_are_one_variant_in_their_order_and_with_all_their_bytes() -> None:
    paths = [f"Q2_K/m-Q2_K-0000{n}-of-00003.gguf" for n in (3, 1, 2)]
    (variant,), _ = find_variants([RepoFile(p, 10) for p in paths])
    assert [f.path for f in variant.files] == sorted(paths)
    assert variant.n_bytes == 30


def test_an_incomplete_set_is_no_variant_and_is_named_as_such() -> None:
    assert names("m-Q2_K-00001-of-00003.gguf", "m-Q2_K-00003-of-00003.gguf", "m-Q8_0.gguf") == ["Q8_0"]
    assert kinds("m-Q2_K-00001-of-00003.gguf") == {"m-Q2_K-00001-of-00003.gguf": "incomplete"}
    assert names("m-Q2_K-00000-of-00000.gguf", "m-Q2_K-00002-of-00001.gguf") == []


def test_a_set_that_lacks_shards_has_a_name_and_says_which() -> None:
    paths = ["m-Q8_0.gguf", "Q2_K/m-Q2_K-00003-of-00003.gguf", "m-IQ1_M-00001-of-00002.gguf", "m-00000-of-00000.gguf"]
    listing = RepoListing("o/m-GGUF", "0" * 40, *find_variants([RepoFile(path, 1) for path in paths], "m-GGUF"))
    assert incomplete_sets(listing) == {
        "Q2_K": "2 of its 3 shards are missing: there is no m-Q2_K-00001-of-00003.gguf",
        "IQ1_M": "1 of its 2 shards is missing: there is no m-IQ1_M-00002-of-00002.gguf",
    }


def test_files_that_are_no_model_are_listed_apart_by_what_they_are() -> None:
    assert kinds(
        "mmproj-BF16.gguf", "Model-imatrix.gguf", "imatrix-Model-Q8_0.dat", "Model-lora-F16.gguf", "README.md",
        "Model-draft-0.6B-Q4_0.gguf", "ggml-vocab-model.gguf",
    ) == {
        "mmproj-BF16.gguf": "mmproj", "Model-imatrix.gguf": "imatrix", "imatrix-Model-Q8_0.dat": "imatrix",
        "Model-lora-F16.gguf": "lora", "README.md": "other", "Model-draft-0.6B-Q4_0.gguf": "draft",
        "ggml-vocab-model.gguf": "vocab",
    }  # fmt: skip


def test_a_model_quantised_with_an_imatrix_is_a_variant() -> None:
    assert names("Model-Q4_K_M-imatrix.gguf") == ["Q4_K_M-imatrix"]


def test_a_repo_of_draft_models_has_variants() -> None:
    assert names("DeepSeek-R1-DRAFT-0.6B-Q4_0.gguf", model="DeepSeek-R1-DRAFT-0.6B-GGUF") == ["Q4_0"]


@pytest.mark.parametrize(
    "path", ["../m-Q4_0.gguf", "/m-Q4_0.gguf", "a//m-Q4_0.gguf", "m\x1b[2J-Q4_0.gguf", "a/./b.gguf"]
)
def test_a_path_that_no_repo_should_have_is_left_out(path: str) -> None:
    assert find_variants([RepoFile(path, 1)]) == ((), ())


@given(st.lists(st.text("abQ48_K0-/. of12\u202e", max_size=30).map(lambda s: f"{s}.gguf"), unique=True, max_size=12))
def test_names_are_unique_and_can_be_asked_for_by_name(paths: list[str]) -> None:
    variants, _ = find_variants([RepoFile(path, 1) for path in paths], "b-GGUF")
    found = [v.name.lower() for v in variants]
    assert len(set(found)) == len(found)
    for variant in variants:
        reference = parse_repo_reference(f"o/n:{variant.name}")
        assert choose(RepoListing("o/n", None, variants), reference) == (variant,)


LISTING = RepoListing(
    "o/n", "0" * 40, tuple(Variant(n, (RepoFile(f"{n}/m-{n}.gguf", 1),)) for n in ("Q2_K", "Q4_0", "Q8_0"))
)


def chosen(text: str, wanted: list[str] | None = None) -> list[str]:
    return [v.name for v in choose(LISTING, parse_repo_reference(text), wanted)]


def test_a_reference_chooses_by_variant_file_or_folder() -> None:
    assert chosen("o/n") == ["Q2_K", "Q4_0", "Q8_0"]
    assert chosen("o/n:q4_0") == ["Q4_0"]
    assert chosen("https://hf.co/o/n/blob/main/Q8_0/m-Q8_0.gguf") == ["Q8_0"]
    assert chosen("https://hf.co/o/n/tree/main/Q2_K") == ["Q2_K"]
    assert chosen("o/n", ["Q8_0", "Q2_K"]) == ["Q2_K", "Q8_0"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ud-q4_k_xl", ["UD-Q4_K_XL"]),
        ("UD_Q4_K_XL", ["UD-Q4_K_XL"]),
        ("Q4_K_XL", ["UD-Q4_K_XL"]),
        ("Q4_K_M", ["Q4_K_M"]),
        ("q4km", ["Q4_K_M"]),
        ("udq4kxl", ["UD-Q4_K_XL"]),
        ("Q2_K_XL", []),
        ("K_XL", []),
    ],
)
def test_a_variant_is_found_without_the_prefix_that_only_one_has(name: str, found: list[str]) -> None:
    paths = ["m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf", "m-UD-Q2_K_XL.gguf", "m-i1-Q2_K_XL.gguf"]
    listing = RepoListing("o/n", "0" * 40, *find_variants([RepoFile(path, 1) for path in paths], "m"))
    if found:
        assert [v.name for v in choose(listing, parse_repo_reference(f"o/n:{name}"))] == found
    else:
        with pytest.raises(UnknownVariant, match=r"several|no variant"):
            choose(listing, parse_repo_reference(f"o/n:{name}"))


@pytest.mark.parametrize(("name", "what"), [("mmproj-F16", "--mmproj"), ("mmproj", "--mmproj"), ("imatrix", "matrix")])
def test_a_file_that_is_loaded_beside_a_model_is_no_variant_and_it_says_what_it_is(name: str, what: str) -> None:
    with pytest.raises(UnknownVariant, match=what):
        chosen(f"o/n:{name}")


@pytest.mark.parametrize(("file", "what"), [("mmproj-F16.gguf", "--mmproj"), ("imatrix_unsloth.dat", "matrix")])
def test_the_address_of_such_a_file_is_answered_with_what_it_is(file: str, what: str) -> None:
    listing = RepoListing("o/n", None, *find_variants([RepoFile("m-Q8_0.gguf", 9), RepoFile(file, 1)], "m"))
    for at in (listing, LISTING):
        with pytest.raises(UnknownVariant, match=what):
            choose(at, parse_repo_reference(f"https://huggingface.co/o/n/blob/main/{file}"))


def test_a_variant_that_is_not_all_there_is_said_to_lack_shards() -> None:
    paths = ["m-Q4_K_M.gguf", "Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0/m-Q8_0-00003-of-00003.gguf"]
    listing = RepoListing("o/n", "0" * 40, *find_variants([RepoFile(path, 1) for path in paths], "m"))
    with pytest.raises(
        UnknownVariant, match="'q8_0' is no variant but an incomplete set, as some of its shards"
    ) as caught:
        choose(listing, parse_repo_reference("o/n:q8_0"))
    assert caught.value.choices == ("Q4_K_M",)
    with pytest.raises(UnknownVariant, match="the repo has no variant 'Q6_K'"):
        choose(listing, parse_repo_reference("o/n:Q6_K"))


def test_an_unknown_variant_is_answered_with_those_there_are_the_nearest_first() -> None:
    with pytest.raises(UnknownVariant) as caught:
        chosen("o/n:Q5_0")
    assert caught.value.choices == ("Q4_0", "Q8_0", "Q2_K")
    assert caught.value.field == "repo"
    with pytest.raises(UnknownVariant) as caught:
        chosen("o/n", ["Q5_0"])
    assert caught.value.field == "constraints.variants"


def test_a_reference_and_a_constraint_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="different variants"):
        chosen("o/n:Q4_0", ["Q8_0"])


def test_more_than_the_limits_is_refused_unless_a_variant_is_named() -> None:
    limits = ListingLimits(variants=2)
    with pytest.raises(RepoTooLarge, match="name a variant") as caught:
        choose(LISTING, limits=limits)
    assert "Q2_K" in caught.value.choices
    assert len(choose(LISTING, names=["Q8_0"], limits=limits)) == 1
    with pytest.raises(RepoTooLarge):
        choose(LISTING, limits=ListingLimits(shards=2))


def test_the_shards_of_a_set_are_spelled_like_the_one_that_is_named() -> None:
    assert shard_names("a-00002-of-00002.GGUF", 9) == ["a-00001-of-00002.GGUF", "a-00002-of-00002.GGUF"]
    assert shard_names("a-00002-of-00002", 9) == ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert shard_names("a-00002-of-00010.gguf", 9) == ["a-00002-of-00010.gguf"]
