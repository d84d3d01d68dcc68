"""Which repo and variant a command is about, and the check of it."""

import pytest

from service.engine.commands.parse import parse
from service.engine.errors import InvalidFlags, InvalidInput, UnknownVariant
from service.engine.gguf.header import Header
from service.errors import RateLimited
from service.flows.advice.check import check_command
from service.flows.advice.command_model import repo_in_path
from service.flows.advice.companions import companions
from service.flows.advice.repos import inspect
from service.flows.context import Context
from service.hub.listing import OtherFile, RepoFile, RepoListing, Variant
from service.wire.advice.check import CheckRequest
from tests.flows.conftest import WatchedHub
from tests.projectors import gemma3_header

REPO = "Qwen/Qwen3-0.6B-GGUF"
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


def asked(command: str, repo: str | None = None) -> CheckRequest:
    return CheckRequest(command=command, repo=repo, hardware=RIG, engine="llama.cpp")


def test_the_variant_is_the_one_that_holds_the_command_s_file(context: Context, hub: WatchedHub) -> None:
    answer = check_command(context, asked("llama-server -m /some/where/Qwen3-0.6B-Q8_0.gguf -c 4096", REPO))
    assert (answer.repo, answer.variant, answer.fits) == (REPO, "Q8_0", True)
    assert answer.revision
    assert hub.read == ["Q8_0"]


@pytest.mark.parametrize(
    "command",
    [f"llama-server -hf {REPO}:Q8_0",
     f"llama-server -mu https://huggingface.co/{REPO}/resolve/main/Qwen3-0.6B-Q8_0.gguf?download=true",
     f"llama-server -m /models/{REPO}/Qwen3-0.6B-Q8_0.gguf",
     rf"llama-server.exe -m C:\models\{REPO.replace('/', chr(92))}\Qwen3-0.6B-Q8_0.gguf",
     "llama-server -m ~/.cache/models--Qwen--Qwen3-0.6B-GGUF/snapshots/abc/Qwen3-0.6B-Q8_0.gguf"],
)  # fmt: skip
def test_a_command_that_names_its_repo_needs_no_other_word(context: Context, hub: WatchedHub, command: str) -> None:
    answer = check_command(context, asked(command))
    assert (answer.repo, answer.variant) == (REPO, "Q8_0")


def test_a_command_that_names_no_quantisation_has_the_one_that_its_engine_takes_and_that_is_said(
    context: Context, hub: WatchedHub
) -> None:
    answer = check_command(context, asked(f"llama-server -hf {REPO} -c 4096"))
    assert (answer.variant, answer.assumed[0].field, answer.assumed[0].value) == ("Q4_K_M", "variant", "Q4_K_M")
    with pytest.raises(UnknownVariant):
        check_command(context, asked("llama-server -c 4096", REPO))


def test_a_variant_asked_for_other_than_the_command_s_file_is_said(context: Context, hub: WatchedHub) -> None:
    answer = check_command(context, asked("llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096", f"{REPO}:Q4_K_M"))
    assert answer.variant == "Q4_K_M"
    assert "which is Q8_0" in answer.assumed[0].why
    answer = check_command(context, asked("llama-server -m mine.gguf -c 4096", f"{REPO}:Q4_K_M"))
    assert answer.assumed[0].field != "variant"


def test_without_a_repo_the_one_read_here_that_holds_the_file_is_taken_and_said(
    context: Context, hub: WatchedHub
) -> None:
    inspect(context, REPO)
    answer = check_command(context, asked("llama-server -m /mnt/Qwen3-0.6B-Q8_0.gguf -c 4096"))
    assert (answer.repo, answer.variant) == (REPO, "Q8_0")
    assert (answer.assumed[0].field, answer.assumed[0].value) == ("repo", REPO)


def test_without_a_repo_the_problem_asks_for_it_and_names_those_read_here(context: Context, hub: WatchedHub) -> None:
    inspect(context, REPO)
    with pytest.raises(InvalidInput) as error:
        check_command(context, asked("llama-server -m Qwen3-0.6B-IQ3_XS.gguf"))
    assert error.value.field == "repo"
    assert error.value.choices == (REPO,)


def test_a_file_that_the_repo_lacks_is_refused_with_the_variants_it_has(context: Context, hub: WatchedHub) -> None:
    with pytest.raises(UnknownVariant) as error:
        check_command(context, asked("llama-server -m mine.gguf", REPO))
    assert "Q8_0" in error.value.choices


def test_what_is_wrong_with_the_command_is_said_before_anything_is_read(context: Context, hub: WatchedHub) -> None:
    with pytest.raises(InvalidFlags):
        check_command(context, asked("llama-server -c $(many)", REPO))
    with pytest.raises(InvalidInput, match="log"):
        check_command(context, CheckRequest(command="llama-server -c 1", repo=f"{REPO}:Q8_0", hardware=RIG, log="hm"))
    assert hub.listed == []


def test_a_repo_never_read_here_is_admitted_first(context: Context, hub: WatchedHub) -> None:
    def refuse() -> None:
        raise RateLimited("too many", retry_after=60)

    with pytest.raises(RateLimited):
        check_command(context, asked("llama-server", f"{REPO}:Q8_0"), refuse)
    assert hub.listed == []


@pytest.mark.parametrize(
    ("path", "repo"),
    [("/models/unsloth/Qwen3-235B-A22B-GGUF/Q4_K_M/x.gguf", "unsloth/Qwen3-235B-A22B-GGUF"), ("x.gguf", None),
     ("/home/me/models/x.gguf", None), ("/models/../gguf/x.gguf", None), ("/a b/c-GGUF/x.gguf", None),
     ("/" * 100_000 + "x.gguf", None)],
)  # fmt: skip
def test_two_folders_name_a_repo_where_the_second_is_one_of_ggufs(path: str, repo: str | None) -> None:
    assert repo_in_path(path) == repo


def test_a_path_is_a_name_and_is_never_opened(context: Context, hub: WatchedHub) -> None:
    assert parse("llama-server -m /etc/passwd", "llama.cpp").model_path == "/etc/passwd"
    with pytest.raises(InvalidInput, match="which repo"):
        check_command(context, asked("llama-server -m /etc/passwd"))


EXTRAS = "local/gemma-3-12b-it-GGUF"


def test_a_projector_and_a_draft_are_read_from_the_model_s_repo(context: Context, hub: WatchedHub) -> None:
    command = "llama-server -m gemma-3-12b-it-Q4_K_M.gguf -c 4096 -fit off --mmproj mmproj-F16.gguf -md {}"
    answer = check_command(context, asked(command.format("gemma-3-12b-it-draft-0.5B-Q8_0.gguf"), EXTRAS))
    assert {one.kind for one in answer.memory.companions} == {"draft", "projector"}
    assert not [f for f in answer.findings if f.rule == "not-counted"]


# llama.cpp pull 12694: `-hf` also loads the projector of the repo; issue 23265: until `--no-mmproj`
def test_the_projector_that_hf_loads_by_itself_is_read_from_its_repo_and_told(
    context: Context, hub: WatchedHub
) -> None:
    answer = check_command(context, asked(f"llama-server -hf {EXTRAS} -c 4096 -fit off"))
    assert [(one.kind, one.device) for one in answer.memory.companions] == [("projector", "CUDA0")]
    (told,) = [f for f in answer.findings if f.rule == "projector-unasked"]
    assert "MiB of CUDA0" in told.message
    without = check_command(context, asked(f"llama-server -hf {EXTRAS} -c 4096 -fit off --no-mmproj"))
    assert without.memory.companions == []
    text_only = check_command(context, asked(f"llama-server -hf {REPO} -c 4096 -fit off"))
    assert not {f.rule for f in text_only.findings} & {"not-counted", "projector-unasked"}


# llama.cpp 0c1e57098 common/download.cpp:545 (find_best_sibling)
@pytest.mark.parametrize(
    ("model", "others", "taken"),
    [("a-Q4_K_M.gguf", ["mmproj-BF16.gguf", "mmproj-F32.gguf"], "mmproj-BF16.gguf"),
     ("a-Q8_0.gguf", ["mmproj-F16.gguf", "mmproj-Q8_0.gguf"], "mmproj-Q8_0.gguf"),
     ("Q8_0/a-Q8_0-00001-of-00002.gguf", ["mmproj-Q8_0.gguf", "Q8_0/mmproj-F16.gguf"], "Q8_0/mmproj-F16.gguf"),
     ("a-Q8_0.gguf", ["vision/mmproj-Q8_0.gguf"], None), ("a-Q8_0.gguf", [], None),
     ("a-Q8_0.gguf", ["MMPROJ-Q8_0.gguf", "a-vision.gguf"], None)],
)  # fmt: skip
def test_of_several_projectors_the_nearest_is_taken(model: str, others: list[str], taken: str | None) -> None:
    variant = Variant("Q", (RepoFile(model),))
    listing = RepoListing("a/b", "0", (variant,), tuple(OtherFile(path, "mmproj") for path in others))
    read: list[str] = []

    def note(_: RepoListing, chosen: Variant) -> Header:
        read.append(chosen.files[0].path)
        return gemma3_header()

    companions(parse("llama-server -hf a/b", "llama.cpp"), None, None, listing, variant, lambda _: listing, note)
    assert read == ([taken] if taken else [])


@pytest.mark.parametrize(
    ("other", "there"), [("mtp-a-Q8_0.gguf", True), ("MTP/mtp-a-Q8_0.gguf", False), ("draft-a.gguf", False)]
)
def test_the_next_token_layers_of_a_repo_lie_beside_the_model_or_above(other: str, there: bool) -> None:
    variant = Variant("Q", (RepoFile("a-Q8_0.gguf"),))
    listing = RepoListing("a/b", "0", (variant,), (OtherFile(other, "draft"),))
    parsed = parse("llama-server -hf a/b --spec-type draft-mtp", "llama.cpp")
    found = companions(parsed, None, None, listing, variant, lambda _: listing, lambda *_: gemma3_header())
    assert found.head_in_repo is there


def test_a_draft_from_another_repo_is_named_in_the_request(context: Context, hub: WatchedHub) -> None:
    command = f"llama-server -hf {REPO}:BF16 -c 4096 -fit off -md draft.gguf"
    request = CheckRequest(command=command, hardware=RIG, engine="llama.cpp", draft=f"{REPO}:Q8_0")
    draft = {one.device: one for one in check_command(context, request).memory.companions}
    assert draft["CUDA0"].weights_mib > 600


def test_a_draft_that_is_nowhere_is_a_finding_and_one_that_the_repo_lacks_a_problem(
    context: Context, hub: WatchedHub
) -> None:
    command = f"llama-server -hf {REPO}:BF16 -c 4096 -fit off -md draft.gguf --spec-type draft-simple"
    answer = check_command(context, asked(command))
    assert [f.rule for f in answer.findings if f.severity == "warning"][-1] == "not-counted"
    assert answer.verdict.startswith("Fits, apart from what is not counted: ")
    with pytest.raises(UnknownVariant) as error:
        check_command(context, CheckRequest(command=command, hardware=RIG, engine="llama.cpp", draft=f"{REPO}:Q3_K_S"))
    assert error.value.field == "draft"
    assert any("Q8_0" in choice for choice in error.value.choices)
