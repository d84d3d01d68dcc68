"""The card of an answer: the same in every form, and each of its lines one that can be pasted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.bots.advising import advice_answer
from service.bots.answer import Code
from service.engine.advice import Package, Weighed
from service.engine.catalogue import resolve
from service.engine.engines import engine_spec
from service.engine.hardware import Assumption, Gpu
from service.engine.hardware_text import parse_hardware
from service.wire.advice.card import card_of, fact_of, step_lines, step_words
from service.wire.advice.text import render_markdown, render_text
from service.wire.plain_text import as_text, quoted
from tests.wire.test_text import advice


class _BotContext:
    """What an answer in chat asks of the bots."""

    class context:
        class settings:
            bot_verbs_off = ()

    @staticmethod
    def address(path: str) -> str:
        return f"http://127.0.0.1{path}"


def test_all_forms_show_one_card() -> None:
    card = card_of(advice())
    assert card is not None
    chat = advice_answer(_BotContext(), advice())  # type: ignore[arg-type]
    shown = "\n".join(part.text if isinstance(part, Code) else part for part in (chat.title, *chat.parts))
    text, markdown = render_text(advice(), "full"), render_markdown(advice())
    for form in (shown, text, markdown):
        flat = " ".join(form.replace("\\_", "_").replace("\\#", "#").split())
        assert card.sentence in flat
        assert card.why in flat
        assert all(" ".join("\n".join(step_lines(step, "posix")).split()) in flat for step in card.steps)
        assert f"TG {card.now.tg_tps:.1f} t/s" in flat
        assert card.full is not None
        assert f"(full): TG {card.full.tg_tps:.1f} t/s" in flat
    assert all(quoted(step_words(n, step)) in markdown for n, step in enumerate(card.steps, 1))


def test_it_says_get_download_run_and_the_oldest_build() -> None:
    card = card_of(advice())
    assert card is not None
    get, download, run = card.steps
    oldest = advice().configs[0].commands.oldest_build
    assert oldest is not None
    assert get.title == f"Get ik_llama.cpp from {oldest.date} or newer"
    assert [line.split()[0] for line in get.posix.split("\n")] == ["git", "cmake", "cmake", "export"]
    assert "&&" not in get.powershell
    assert (download.title, download.posix.split()[0]) == ("Download", "hf")
    assert (run.title, run.posix.split()[0]) == ("Run", "llama-server")


@pytest.mark.parametrize(
    ("os", "note"),
    [
        ("Windows 11", "prebuilt, from winget"),
        ("Ubuntu 24.04", "no package fits: build it"),
        (None, "no package fits: build it; Windows: prebuilt, from winget"),
    ],
)
def test_how_to_get_the_engine_is_said_for_the_system_that_is_stated(os: str | None, note: str) -> None:
    asked, first = advice(), advice().configs[0]
    package = Package("powershell", "winget", "winget install llama.cpp", "llama.cpp docs/install.md")
    config = replace(first, commands=replace(first.commands, packages=(package,)))
    card = card_of(replace(asked, configs=[config], hardware=replace(asked.hardware, os=os)))
    assert card is not None
    assert card.steps[0].note == note


def test_after_a_build_its_server_is_the_one_that_is_run_from_where_the_download_goes() -> None:
    card = card_of(advice())
    assert card is not None
    get = card.steps[0]
    assert get.posix.split("\n")[-1] == 'export PATH="$PWD/build/bin:$PATH" && cd ..'
    assert get.powershell.split("\n")[-1].startswith('$env:PATH = "$PWD\\build\\bin\\Release;')
    assert get.powershell.endswith("; cd ..")


def test_a_package_comes_before_building() -> None:
    first = advice().configs[0]
    brew = Package("posix", "Homebrew", "brew install llama.cpp", "llama.cpp docs/install.md")
    with_package = replace(first, commands=replace(first.commands, packages=(brew,)))
    card = card_of(replace(advice(), configs=[with_package]))
    assert card is not None
    assert card.steps[0].posix == "brew install llama.cpp"
    assert "git clone" in card.steps[0].powershell


@pytest.mark.parametrize(
    ("backend", "archive", "needs"),
    [("rocm", "ubuntu-rocm-10.0-x64.tar.gz", "ROCm 10.0"),
     ("sycl", "ubuntu-sycl-fp32-x64.tar.gz", "oneAPI 2026.1")],
)  # fmt: skip
def test_an_archive_that_needs_something_comes_before_building_and_vulkan_besides(
    backend: str, archive: str, needs: str
) -> None:
    first, asked = advice().configs[0], advice()
    commands = replace(first.commands, packages=engine_spec("llama.cpp").commands.packages(backend))
    linux = replace(asked.hardware, os="Ubuntu 24.04")
    card = card_of(replace(asked, configs=[replace(first, commands=commands)], hardware=linux))
    assert card is not None
    get = card.steps[0]
    assert get.note == f"prebuilt if {needs} is installed, else build it"
    named, unpacked, other, *build = get.posix.split("\n")
    assert archive in named
    assert needs in unpacked
    assert "conda install -c conda-forge llama.cpp, which uses Vulkan" in other
    assert build[0].startswith("git clone")
    assert all(line.startswith("# ") for line in step_lines(get, "posix", 120)[:3])


def test_what_counts_against_a_better_variant_besides_its_time_is_said() -> None:
    first = replace(advice().configs[0], loss_percent=(1.0, 2.9, 6.0), weighed=Weighed(ram_used=0.8))
    better = replace(first, variant="BETTER", loss_percent=(0.5, 1.4, 3.0))
    full = replace(better, weighed=Weighed(ram_used=0.9, raises_limit=True))
    whys = [card_of(replace(advice(), configs=[first, one])) for one in (better, full)]
    same, filling = (card.why for card in whys if card is not None)
    assert "BETTER would be closer to 16-bit" in same
    assert "usable RAM" not in same
    assert "but it fills 90 % of the usable RAM and it needs a higher memory limit for the GPU" in filling


def test_what_is_as_good_and_faster_by_a_formula_is_named_with_the_reason_why_it_is_not_first() -> None:
    first = advice().configs[0]
    speed = [replace(point, tg_tps=2 * point.tg_tps) for point in first.speed]
    graph = replace(
        first, rank=2, engine="ik_llama.cpp", flags=replace(first.flags, split_mode="graph"), speed=speed,
        goal_seconds=tuple(0.7 * seconds for seconds in first.goal_seconds),
    )  # fmt: skip
    cards = [card_of(replace(advice(), configs=[first, one])) for one in (graph, first)]
    uncertain, alone = (card.why for card in cards if card is not None)
    assert "would be 2.0 times as fast, but its speed with -sm graph comes from a formula" in uncertain
    assert "nothing of similar quality is clearly faster" in alone
    assert "clearly faster" not in uncertain


def test_a_faster_way_to_run_the_same_file_is_named_by_its_place_in_the_list() -> None:
    first = replace(advice().configs[0], strategy="all on GPU")
    speed = [replace(point, tg_tps=2 * point.tg_tps) for point in first.speed]
    faster = replace(first, rank=2, strategy="FFN in RAM", speed=speed)
    card = card_of(replace(advice(), configs=[first, faster]))
    assert card is not None
    named = f"#2 ({first.variant} with {first.engine}) would be 2.0 times as fast"
    assert f"{named}, but not all of it runs on the GPU" in card.why


def test_a_config_that_only_generates_faster_is_not_called_faster_while_a_request_takes_longer() -> None:
    first = replace(advice().configs[0], strategy="all on GPU")
    speed = [replace(point, tg_tps=1.3 * point.tg_tps) for point in first.speed]
    longer = tuple(1.19 * seconds for seconds in first.goal_seconds)
    other = replace(first, rank=2, engine="ik_llama.cpp", speed=speed, goal_seconds=longer)
    card = card_of(replace(advice(), configs=[first, other]))
    assert card is not None
    assert "would generate 1.3 times as fast, but a request takes 19 % longer" in card.why


def test_a_faster_variant_that_is_a_little_worse_is_weighed_by_its_perplexity() -> None:
    first = replace(advice().configs[0], loss_percent=(0.0, 0.1, 0.4))
    speed = [replace(point, tg_tps=1.2 * point.tg_tps) for point in first.speed]
    less = tuple(0.87 * seconds for seconds in first.goal_seconds)
    faster = replace(first, rank=2, loss_percent=(0.0, 0.3, 0.9), speed=speed, goal_seconds=less)
    worse = replace(faster, rank=3, variant="WORSE", loss_percent=(0.3, 1.1, 2.5))
    card = card_of(replace(advice(), configs=[first, faster, worse]))
    assert card is not None
    assert "1.2 times as fast, but its perplexity is 0.3 % above 16-bit instead of 0.1 %" in card.why
    assert "less time" not in card.why
    assert "WORSE" not in card.why, "it is no faster, and worse"


def test_less_time_by_a_formula_is_no_price_of_a_better_variant() -> None:
    first = replace(advice().configs[0], loss_percent=(1.0, 2.9, 6.0))
    tensor = replace(first.flags, split_mode="tensor")
    faster = tuple(0.9 * seconds for seconds in first.goal_seconds)
    better = replace(first, variant="BETTER", loss_percent=(0.5, 1.4, 3.0), flags=tensor, goal_seconds=faster)
    card = card_of(replace(advice(), configs=[first, better]))
    assert card is not None
    assert "but its speed with -sm tensor comes from a formula and has to be measured" in card.why
    assert "less time" not in card.why


def test_a_better_variant_that_takes_less_time_is_said_to_have_a_smaller_cache_and_weights_off_the_gpu() -> None:
    first = replace(advice().configs[0], loss_percent=(1.0, 2.9, 6.0), strategy="all on GPU")
    flags = replace(first.flags, cache_type_k="q4_0", cache_type_v="q4_0")
    faster = tuple(0.95 * seconds for seconds in first.goal_seconds)
    better = replace(
        first, variant="BETTER", loss_percent=(0.5, 1.4, 3.0), flags=flags, goal_seconds=faster, strategy="FFN in RAM"
    )
    card = card_of(replace(advice(), configs=[first, better]))
    assert card is not None
    assert "but not all of it runs on the GPU and its cache is q4_0 instead of f16" in card.why


@pytest.mark.parametrize("backend", ["rocm", "sycl"])
def test_windows_gets_the_archives_of_releases_where_nobody_else_packages_the_backend(backend: str) -> None:
    first = advice().configs[0]
    packages = engine_spec("llama.cpp").commands.packages(backend)
    card = card_of(replace(advice(), configs=[replace(first, commands=replace(first.commands, packages=packages))]))
    assert card is not None
    get = card.steps[0]
    assert "git clone" in get.posix
    assert f"-bin-win-{backend}" in get.powershell
    assert all(line.startswith("# ") for line in step_lines(get, "powershell", 100)), "to read, whole on each line"


def test_commands_on_several_lines_stay_several_when_folded() -> None:
    card = card_of(advice())
    assert card is not None
    for step in card.steps:
        whole = "\n".join(step_lines(step, "posix", 60))
        assert whole.replace(" \\\n  ", " ") == step.posix
    assert step_lines(card.steps[0], "posix")[0].startswith("git clone")
    assert "\\" not in step_lines(card.steps[0], "posix")[0]


@pytest.mark.parametrize("system", ["Windows 11", "win10"])
def test_a_machine_with_windows_gets_its_commands_for_powershell_everywhere(system: str) -> None:
    first = advice().configs[0]
    commands = replace(first.commands, powershell=f"$env:A = '1'\n{first.commands.powershell}")
    windows = replace(
        advice(), hardware=replace(advice().hardware, os=system), configs=[replace(first, commands=commands)]
    )
    chat = advice_answer(_BotContext(), windows)  # type: ignore[arg-type]
    codes = [part for part in chat.parts if isinstance(part, Code) and part.language]
    assert {code.language for code in codes} == {"powershell"}
    for form in (render_text(windows, "full"), render_markdown(windows), "\n".join(code.text for code in codes)):
        assert "$env:A = '1'\nllama-server `\n" in form
        assert " \\\n" not in form.split("# bash")[0].split("llama-sweep-bench")[0]


def test_a_processors_gpu_that_nobody_named_comes_before_its_memory() -> None:
    assumed = list(resolve(parse_hardware("Ryzen 7 8845HS, 64GB")).assumed)
    first = replace(advice().configs[0], strategy="all on GPU")
    card = card_of(replace(advice(), assumed=assumed, configs=[first]))
    assert card is not None
    assert (card.facts[0].name, card.facts[0].value) == ("GPUs", "AMD Radeon 780M")


@pytest.mark.parametrize("strategy", ["all on GPU", "experts in RAM"])
def test_the_two_facts_that_matter_most_come_first(strategy: str) -> None:
    first = replace(advice().configs[0], strategy=strategy)
    assumed = advice().assumed[0]
    fields = ("hardware.cpu.ghz", "hardware.gpus[0].vram_gib", "hardware.ram.total_gb")
    card = card_of(replace(advice(), configs=[first], assumed=[replace(assumed, field=field) for field in fields]))
    assert card is not None
    expected = ["VRAM of the RTX 3090", "RAM"]
    assert [fact.name for fact in card.facts] == (expected if strategy == "all on GPU" else expected[::-1])
    assert card.more_assumed == 1


def test_an_answer_without_a_config_has_no_card() -> None:
    assert card_of(replace(advice(), configs=[])) is None


def test_no_lines_are_no_text() -> None:
    assert as_text([]) == ""
    assert as_text(["It fits.", "a  row"]) == "It fits.\na  row\n"


@pytest.mark.parametrize(
    ("name", "say"), [("Apple M4 Max", ""), ("Radeon 8060S", "8060S [58 GiB]"), ("RTX 3060", "RTX 3060 12GB")]
)
def test_the_example_for_a_shared_memory_states_the_gpus_part_where_that_can_be_said(name: str, say: str) -> None:
    fact = fact_of(Assumption("hardware.gpus[0].vram_gib", "116.0", "why", "what fits"), [Gpu(name=name)])
    assert fact.say.endswith(say) if say else fact.say == ""


@pytest.mark.parametrize(
    ("field", "value", "say"),
    [
        ("ram.channels", "8", "4 channels"),
        ("ram.channels", "1", "2 channels"),
        ("ram.channels", "2", "1 channel"),
        ("ram.mts", "3200", "DDR4-2666"),
        ("ram.mts", "2666", "DDR4-3200"),
        ("ram.mts", "5200", "DDR5-5600"),
        ("gpus[0].pcie", "4.0 x16", "RTX 3060 PCIe 3.0 x4"),
        ("gpus", "none", "2x RTX 3090"),
        ("gpus", "AMD Radeon 780M", "no GPU"),
    ],
)
def test_the_example_of_what_to_write_instead_is_another_than_was_assumed(field: str, value: str, say: str) -> None:
    fact = fact_of(Assumption(f"hardware.{field}", value, "why", "speed"), [Gpu(name="RTX 3060")])
    assert fact.say == say
    if "[" in say:
        assert resolve(parse_hardware(f"{fact.say}, 128GB")).cards[0].total == 116 << 30


@pytest.mark.parametrize(
    ("name", "assumed", "example"),
    [("Arc A770", "16", "Arc A770 8GB"), ("RX 580", "8", "RX 580 4GB"), ("RTX 4060 Ti", "8", "RTX 4060 Ti 16GB")],
)
def test_a_size_that_was_assumed_is_corrected_by_one_that_the_card_is_sold_with(
    name: str, assumed: str, example: str
) -> None:
    fact = fact_of(Assumption("hardware.gpus[0].vram_gib", assumed, "why", "what fits"), [Gpu(name=name)])
    assert fact.say == example
