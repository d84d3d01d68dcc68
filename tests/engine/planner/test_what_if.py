"""Questions about other hardware: how they are read, what they gain on machines that people have."""

from __future__ import annotations

import pytest

from service.engine.advice import AdviceBody, Upgraded, WhatIf
from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, EngineChoice
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical
from service.engine.planner.explaining.upgrades import Upgrade, asks_for_best, changed, usual
from tests import rigs
from tests.engine.planner.asking import ask, first

QWEN = "Qwen3-235B-A22B"
R1, R1_IK = "DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"
MINER = canonical(parse_hardware("2x RTX 4090 pcie 4.0 x4 + RTX 3090, EPYC 7713, 256GB DDR4-2933 x8"))


def after(text: str, hardware: Hardware = MINER) -> Upgrade:
    return changed(hardware, resolve(hardware), text)


def counts(hardware: Hardware) -> dict[str, int]:
    found: dict[str, int] = {}
    for card in resolve(hardware).cards:
        name = card.name.removeprefix("NVIDIA GeForce ")
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("+1 RTX 3090", {"RTX 4090": 2, "RTX 3090": 2}),
        ("+ 2x RTX 5090", {"RTX 5090": 2, "RTX 4090": 2, "RTX 3090": 1}),
        ("-1 RTX 4090", {"RTX 4090": 1, "RTX 3090": 1}),
        ("−2 RTX 4090", {"RTX 3090": 1}),
        ("no GPU", {}),
        ("CPU only", {}),
        ("RTX 5090 instead of RTX 3090", {"RTX 5090": 1, "RTX 4090": 2}),
        ("2x RTX 5090 instead of 2x RTX 4090", {"RTX 5090": 2, "RTX 3090": 1}),
        ("swap the 3090 for a 5090", {"RTX 5090": 1, "RTX 4090": 2}),
        ("replace RTX 3090 with RTX 5090", {"RTX 5090": 1, "RTX 4090": 2}),
        ("two more 5090s", {"RTX 5090": 2, "RTX 4090": 2, "RTX 3090": 1}),
        ("add a second 3090", {"RTX 4090": 2, "RTX 3090": 2}),
        ("another 3090 and another 4090", {"RTX 4090": 3, "RTX 3090": 2}),
        ("remove the 3090", {"RTX 4090": 2}),
        ("sell both 4090s and buy a 5090", {"RTX 5090": 1, "RTX 3090": 1}),
        ("what if I add another 3090?", {"RTX 4090": 2, "RTX 3090": 2}),
        ("would a second 3090 help?", {"RTX 4090": 2, "RTX 3090": 2}),
        ("upgrade the 3090 to a 5090", {"RTX 5090": 1, "RTX 4090": 2}),
        ("+1 RTX 3090 x4", {"RTX 4090": 2, "RTX 3090": 2}),
        ("how much would a second 3090 help?", {"RTX 4090": 2, "RTX 3090": 2}),
        ("is it worth adding another 3090", {"RTX 4090": 2, "RTX 3090": 2}),
        ("3090 -> 5090", {"RTX 5090": 1, "RTX 4090": 2}),
        ("without the 3090", {"RTX 4090": 2}),
        ("drop one 4090", {"RTX 4090": 1, "RTX 3090": 1}),
    ],
)
def test_cards_come_and_go(text: str, cards: dict[str, int]) -> None:
    assert counts(after(text).hardware) == cards


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("256 GB more RAM", 512),
        ("another 128GB", 384),
        ("+64 GB RAM", 320),
        ("-128 GB RAM", 128),
        ("1TB RAM", 1024),
        ("+1 RTX 3090 and 256 GB more RAM", 512),
        ("add 64gb", 320),
        ("add 2x 3090 and 64GB", 320),
        ("upgrade RAM to 512GB", 512),
        ("double the RAM", 512),
        ("what if I had 512GB RAM", 512),
        ("add another 2x32GB", 320),
        ("add 2x 32GB", 320),
        ("go from 256GB to 512GB", 512),
    ],
)
def test_memory_grows_and_shrinks(text: str, total: int) -> None:
    upgrade = after(text)
    assert resolve(upgrade.hardware).ram_bytes == total << 30
    assert upgrade.ram_gib == total - 256


def test_faster_memory_is_read_faster_and_a_measured_figure_of_the_old_one_is_dropped() -> None:
    measured = Hardware(gpus=[], ram=Ram(total_gb=128, type="DDR4", channels=8, mts=2666, measured_bandwidth_gbs=90))
    faster = after("DDR4-3200 x8", measured)
    assert faster.component == "RAM speed"
    assert resolve(faster.hardware).cpu_bandwidth_gbs > 100


DESKTOP = canonical(parse_hardware("RTX 3090 [display; 22 GiB free], Ryzen 9 7950X, 64GB DDR5-4800, Windows 11"))


@pytest.mark.parametrize(
    ("text", "mts"),
    [
        ("DDR5-6000 instead", 6000),
        ("overclock the RAM to 6400 MT/s", 6400),
        ("RAM at 6000", 6000),
        ("EXPO at 6000", 6000),
        ("with XMP at DDR5-6200", 6200),
        ("faster RAM", 6400),
        ("RAM 4800 -> 6000", 6000),
    ],
)
def test_faster_ram_is_understood_as_people_say_it(text: str, mts: int) -> None:
    upgrade = after(text, DESKTOP)
    assert upgrade.component == "RAM speed"
    assert upgrade.hardware.ram is not None
    assert upgrade.hardware.ram.mts == mts


def test_what_a_vague_change_was_taken_for_is_said() -> None:
    """`RAM 5600 -> 6000?`, `is faster RAM worth it`: the rate is the fastest that is sold, or that a server takes."""
    assert after("faster RAM", DESKTOP).text == "faster RAM (DDR5-6400)"
    assert after("faster RAM and double the RAM", DESKTOP).text.endswith("(DDR5-6400, 64 GB more RAM)")
    assert after("faster RAM").text == "faster RAM (DDR4-3200)"
    assert after("EPYC 9354", DESKTOP).text == "EPYC 9354 (DDR5-4800 x12)"
    assert after("Ryzen 9 9950X", DESKTOP).text == "Ryzen 9 9950X"


def test_a_server_is_offered_no_modules_that_its_cpu_does_not_take() -> None:
    server = canonical(parse_hardware("RTX 3090, EPYC 9354, 384GB DDR5-4800 x12"))
    assert "RAM speed" not in {upgrade.component for upgrade in usual(server, resolve(server))}


def test_another_cpu_takes_its_own_kind_of_ram() -> None:
    older = after("Ryzen 7 5800X3D", DESKTOP).hardware.ram
    assert older is not None
    assert (older.type, older.mts, older.total_gb) == ("DDR4", None, 64)
    pair = canonical(parse_hardware("RTX 3090, Ryzen 9 7950X, 2x32GB DDR5-4800"))
    both = after("EPYC 9354, 384GB DDR5-4800", pair)
    assert both.text.endswith("(DDR5-4800 x12)")
    assert both.hardware.ram is not None
    assert both.hardware.ram.channels is None


def test_another_board_takes_modules_at_the_rate_of_its_cpu() -> None:
    """The 6,000 of a desktop's modules are not those of an EPYC 9354, which takes 4,800."""
    fast = canonical(parse_hardware("RTX 3090, Ryzen 9 7950X, 128GB DDR5-6000"))
    assert after("EPYC 9354 with 384GB", fast).text.endswith("(DDR5-4800 x12)")
    assert after("EPYC 9354, 384GB DDR5-4400", fast).text.endswith("(DDR5-4400 x12)")
    assert after("Ryzen 9 9950X", fast).hardware.ram == fast.ram


def test_a_card_named_alone_is_added_where_there_is_none() -> None:
    without = canonical(parse_hardware("Ryzen 7 5700G, 32GB DDR4-3200"))
    for text in ("RTX 3090", "get an RTX 3090", "is a 3090 worth it?"):
        assert counts(after(text, without).hardware) == {"RTX 3090": 1}
    assert counts(after("sell the 3090 and get a 5090", rigs.ONE_3090_DESKTOP).hardware) == {"RTX 5090": 1}


@pytest.mark.parametrize("text", ["5090 or 2x 3090", "5090 vs 4090", "which is better: 5090 or two 3090s"])
def test_two_changes_to_choose_from_are_two_questions(text: str) -> None:
    with pytest.raises(InvalidInput, match="ask each as a question of its own"):
        after(text)


def test_the_monitor_on_the_processors_gpu_frees_the_cards_memory() -> None:
    for text in ("headless", "move the monitor to the iGPU", "no display on the 3090", "run the display off the iGPU"):
        gpu = after(text, DESKTOP).hardware.gpus[0]
        assert (gpu.display, gpu.free_gib) == (False, None)
    assumed_to_have_it = canonical(parse_hardware("RTX 3060 12GB, Ryzen 5 5600X, 32GB"))
    assert not resolve(after("headless", assumed_to_have_it).hardware).cards[0].display


@pytest.mark.parametrize("text", ["Linux instead of Windows", "switch to Linux", "Ubuntu", "what if I use Linux"])
def test_another_system_is_asked_for(text: str) -> None:
    upgrade = after(text, DESKTOP)
    assert upgrade.component == "system"
    assert resolve(upgrade.hardware).os == "linux"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("XMP on", "taken as DDR5-4800; how fast would it be? Write it as in `DDR5-6400`"),
        ("DDR4-3600", "the AMD Ryzen 9 7950X takes DDR5"),
        ("quad channel", "the AMD Ryzen 9 7950X has 2 channels"),
        ("a faster NVMe SSD", "a drive counts only for a model larger than RAM and VRAM"),
        ("without NVLink", "links from card to card do not count"),
        ("undervolt the 3090", "taken as they are sold"),
        ("250W power limit", "taken as they are sold"),
        ("a 5090", "write `+1x 5090` or `1x 5090 instead of all`"),
        ("Windows 10", "the machine is taken to run windows"),
    ],
)
def test_what_is_not_answered_says_why_or_what_to_write(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        after(text, DESKTOP)
    assert says in error.value.detail
    assert error.value.field == "what_if"


@pytest.mark.parametrize("text", ["overclock the RAM to 6400", "XMP at 6000", "6000 MT/s RAM"])
def test_ddr4_is_not_taken_at_rates_that_no_module_has(text: str) -> None:
    machine = canonical(parse_hardware("RTX 3090, Ryzen 9 5950X, 64GB DDR4-3200"))
    with pytest.raises(InvalidInput, match=r"the AMD Ryzen 9 5950X takes DDR4, which is not sold at 6\d00 MT/s"):
        after(text, machine)
    assert after("XMP at 4000", machine).hardware.ram.mts == 4000  # type: ignore[union-attr]


@pytest.mark.parametrize(("machine", "says"), [("M3 Ultra 256GB", "is soldered"), ("RTX 3090, 64GB RAM", "DDR4-3600")])
def test_faster_ram_is_asked_about_where_none_is_faster(machine: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        after("faster RAM", canonical(parse_hardware(machine)))
    with pytest.raises(InvalidInput, match=r"RTX 3090 \[display\]"):
        after("headless", canonical(parse_hardware(machine)))


@pytest.mark.parametrize(
    "text",
    [
        "3090 at PCIe 4.0 x8",
        "move the 3090 to an x8 slot",
        "RTX 3090 on x8",
        "3090 at gen 4 x8",
        "PCIe x8 for the 3090",
        "x8/x8",
    ],
)
def test_a_link_is_asked_for_as_people_say_it(text: str) -> None:
    pair = canonical(parse_hardware("RTX 3090 pcie 4.0 x16 + RTX 4090 pcie 4.0 x4, EPYC 7713, 256GB DDR4-3200"))
    links = {gpu.name: gpu.pcie for gpu in after(text, pair).hardware.gpus}
    other = "4.0 x8" if "/" in text else "4.0 x4"
    assert links == {"NVIDIA GeForce RTX 3090": "4.0 x8", "NVIDIA GeForce RTX 4090": other}


def test_another_generation_keeps_the_lanes() -> None:
    assert after("PCIe 3").hardware.gpus[-1].pcie == "3.0 x4"


def test_a_link_is_that_of_the_cards_that_have_the_old_one() -> None:
    links = {gpu.name: gpu.pcie for gpu in after("PCIe 4 x16 instead of x4").hardware.gpus}
    assert links == {"NVIDIA GeForce RTX 4090": "4.0 x16", "NVIDIA GeForce RTX 3090": None}
    one = {gpu.name: gpu.pcie for gpu in after("PCIe 3 x8 for the RTX 3090").hardware.gpus}
    assert one == {"NVIDIA GeForce RTX 4090": "4.0 x4", "NVIDIA GeForce RTX 3090": "3.0 x8"}


def test_another_cpu_keeps_the_memory() -> None:
    upgrade = after("EPYC 7763")
    assert upgrade.component == "CPU"
    assert resolve(upgrade.hardware).ram_bytes == 256 << 30


@pytest.mark.parametrize(
    "text",
    [
        "banana",
        "",
        "+1 banana",
        "-3 RTX 4090",
        "-1 RTX 5090",
        "2x RTX 5090",
        "-900 GB RAM",
        "PCIe 9 x16",
        "+100 RTX 3090",
        "+1",
        "x" * 300,
        "+0 RTX 3090",
        "24GB more VRAM",
        "PCIe 4 x16 for the RTX 5090",
        "faster CPU",
        "more RAM",
        "second 4090 at x16",
    ],
)
def test_what_is_not_understood_is_a_problem_of_its_field(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        after(text)
    assert error.value.field == "what_if"


def test_what_is_asked_of_the_best_is_understood_in_several_words() -> None:
    assert all(map(asks_for_best, ("best", "Best?", "which single upgrade helps most", "What upgrade should I buy?")))
    assert not any(map(asks_for_best, ("+1 RTX 3090", "best buy", "no GPU")))


def test_the_usual_upgrades_of_a_mining_rig() -> None:
    found = [(u.component, u.vram_gib > 0, u.ram_gib) for u in usual(MINER, resolve(MINER))]
    assert found == [
        ("GPU", True, 0),
        ("GPU", True, 0),
        ("RAM", False, 256),
        ("link", False, 0),
        ("RAM speed", False, 0),
    ]


def test_one_more_of_a_card_has_the_memory_of_the_one_there() -> None:
    machine = canonical(parse_hardware("RTX 4060 Ti 16GB, Core i5-12400, 64GB DDR4-3200"))
    card = next(iter(usual(machine, resolve(machine))))
    assert (card.text, round(card.vram_gib)) == ("+1 NVIDIA GeForce RTX 4060 Ti 16GB", 16)


def test_a_mac_has_no_usual_upgrade() -> None:
    assert not list(usual(rigs.MAC_STUDIO, resolve(rigs.MAC_STUDIO)))


def answered(
    model: str, *mixes: str, hardware: Hardware, what_if: tuple[str, ...], limits: Constraints | None = None
) -> tuple[AdviceBody, list[WhatIf]]:
    body = ask(model, *mixes, hardware=hardware, what_if=what_if, constraints=limits)
    assert [w.asked for w in body.what_if] == list(what_if)
    return body, body.what_if


def only(answer: WhatIf) -> Upgraded:
    assert len(answer.upgrades) == 1
    return answer.upgrades[0]


def test_a_second_3090_on_a_desktop_helps_tokens_and_halves_the_link_for_prompts() -> None:
    body, (second,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("+1 RTX 3090",))
    one, now = only(second), first(body).speed[-1]
    assert one.tg is not None
    assert one.pp is not None
    assert one.speed is not None
    assert one.tg.times > 1.1
    assert one.tg.low < one.tg.times < one.tg.high
    assert one.pp.times < 0.9
    assert one.speed.tg_tps == pytest.approx(now.tg_tps + one.tg.tps, abs=0.02)
    assert one.tg_per_gib == pytest.approx(one.tg.tps / 24, abs=0.001)
    assert "t/s per GiB" in second.text


@pytest.mark.full
def test_a_question_about_a_machine_is_answered_as_asking_with_that_machine_is() -> None:
    """Two 3090s for Qwen 72B: what an owner of both would run, not only the next larger file than today's."""
    mixes, machine = ("iq2_xs", "iq3_xxs", "iq4_xs", "q5_K_M"), rigs.ONE_3090_DESKTOP
    body, (second,) = answered("Qwen2.5-72B", *mixes, hardware=machine, what_if=("+1 RTX 3090",))
    one = only(second)
    both = parse_hardware(one.hardware)
    direct = first(ask("Qwen2.5-72B", *mixes, hardware=both))
    assert first(body).variant != direct.variant
    assert one.also is not None
    assert one.also.startswith(f"{direct.variant} ({direct.bpw:.2f} bpw) with {direct.engine} would come first")
    assert f"TG {direct.speed[-1].tg_tps:.1f} t/s" in one.also
    same = first(ask("Qwen2.5-72B", first(body).variant, hardware=both))
    assert (one.variant, one.engine, one.speed) == (same.variant, same.engine, same.speed[-1])


@pytest.mark.full
def test_the_best_upgrade_and_a_question_of_its_own_say_the_same_of_a_card() -> None:
    """The config that comes first on the changed machine counts, not the fastest of those listed."""
    machine = canonical(parse_hardware("RTX 3060 12GB, Ryzen 5 5600X, 32GB DDR4-3200"))
    asked = ("another 3060", "best")
    _, (card, best) = answered("Qwen3-30B-A3B", "iq4_xs", "q4_k_m", hardware=machine, what_if=asked)
    assert only(card).speed == best.upgrades[0].speed
    direct = ask("Qwen3-30B-A3B", str(only(card).variant), hardware=parse_hardware(only(card).hardware))
    assert only(card).speed == first(direct).speed[-1]


@pytest.mark.full
def test_what_fits_the_changed_machine_is_named_where_todays_variant_no_longer_does() -> None:
    _, (less,) = answered(QWEN, "q2_K", "q3_K_M", hardware=rigs.ONE_3090_DESKTOP, what_if=("80GB RAM",))
    assert less.text.startswith("80GB RAM: q3_K_M no longer fits, ")
    assert "q2_K (" in less.text


@pytest.mark.full
def test_a_second_card_says_why_prompts_take_longer_and_what_a_request_takes() -> None:
    body, (second, beside) = answered(
        QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("+1 RTX 3090", "+1 RTX 3090 pcie 4.0 x4")
    )
    assert "copy weights from RAM at up to 16 GB/s instead of 32, as the cards share the CPU's lanes" in second.text
    assert "`pcie 4.0 x4`" in second.text
    assert f"instead of {first(body).goal_seconds[1]:.0f} s" in second.text
    assert "may draw 350 W more" in second.text
    assert "share the CPU's lanes" not in beside.text


@pytest.mark.full
def test_a_card_of_another_maker_is_said_to_need_vulkan_for_both() -> None:
    machine, change = rigs.ONE_3090_DESKTOP, "+1 RX 7900 XTX"
    _, (other,) = answered(QWEN, "q2_K", hardware=machine, what_if=(change,))
    assert "llama.cpp and Vulkan, which drives cards of several makers together" in other.text


def test_a_card_that_the_new_one_leaves_unused_is_named() -> None:
    machine = canonical(parse_hardware("RTX 3060 12GB, Ryzen 5 5600X, 32GB DDR4-3200"))
    _, (card,) = answered("Qwen3-30B-A3B", "q4_k_m", hardware=machine, what_if=("+1 RTX 3090 pcie 3.0 x1",))
    assert "q4_k_m leaves the NVIDIA GeForce RTX 3060 unused" in card.text


@pytest.mark.full
def test_more_ram_than_a_desktop_takes_is_said_and_not_recommended() -> None:
    desktop = canonical(parse_hardware("RTX 3090, Ryzen 9 7950X, 192GB DDR5-5200"))
    _, (more,) = answered(QWEN, "q2_K", hardware=desktop, what_if=("512GB RAM",))
    assert "four slots take 256 GB at most" in more.text
    assert [u.text for u in usual(desktop, resolve(desktop)) if u.component == "RAM"] == ["64 GB more RAM"]
    full = canonical(parse_hardware("RTX 3090, Ryzen 9 5950X, 128GB DDR4-3200"))
    assert "RAM" not in {u.component for u in usual(full, resolve(full))}
    _, (four,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("256GB RAM",))
    assert "four modules" in four.text
    server = canonical(parse_hardware("RTX 3090, EPYC 9354, 384GB DDR5-4800 x12"))
    assert [u.text for u in usual(server, resolve(server)) if u.component == "RAM"] == ["384 GB more RAM"]


@pytest.mark.parametrize(
    ("cpu", "says"),
    [
        ("EPYC 9354", "needs another board, and modules for it"),
        ("Ryzen 7 5800X3D", "needs another board, and modules for it"),
        ("Core Ultra 9 285K", "needs another board."),
        ("Ryzen 9 9950X", ""),
    ],
)
def test_a_cpu_for_another_board_is_said_to_need_it(cpu: str, says: str) -> None:
    _, (other,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=(cpu,))
    assert says in other.text
    assert ("board" in other.text) == bool(says)


@pytest.mark.full
def test_without_its_gpu_the_same_machine_is_slower_on_the_cpu() -> None:
    _, (none,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("no GPU",))
    one = only(none)
    assert (one.strategy, one.gpus) == ("CPU only", 0)
    assert one.tg is not None
    assert one.tg.times < 0.9
    assert one.vram_gib == -24


@pytest.mark.parametrize(("card", "device"), [("Intel Arc Pro B70", "Vulkan"), ("RX 7900 XTX", "ROCm")])
def test_a_card_that_todays_engine_does_not_drive_is_asked_of_the_other_engine(card: str, device: str) -> None:
    change = f"replace RTX 3090 with {card}"
    used = "./llama-server -m /models/Qwen3-30B-A3B-q4_k_m.gguf -c 16384 -ngl 99 -fmoe"
    in_use = Constraints(current_command=used)
    machine = rigs.ONE_3090_DESKTOP
    body, (other,) = answered("Qwen3-30B-A3B", "q4_k_m", hardware=machine, what_if=(change,), limits=in_use)
    assert (first(body).engine, only(other).engine) == ("ik_llama.cpp", "llama.cpp")
    assert "with llama.cpp" in other.restricted
    hardware = parse_hardware(only(other).hardware)
    then = first(ask("Qwen3-30B-A3B", "q4_k_m", hardware=hardware))
    assert then.devices[0].device == f"{device}0"
    assert only(other).speed == then.speed[-1]


@pytest.mark.parametrize(
    "text", ["RX 7900 XTX instead", "replace it with RX 7900 XTX", "swap my card for an RX 7900 XTX"]
)
def test_the_only_card_need_not_be_named(text: str) -> None:
    assert counts(after(text, rigs.ONE_3090_DESKTOP).hardware) == {"AMD Radeon RX 7900 XTX": 1}
    with pytest.raises(InvalidInput, match="instead of which GPU"):
        after(text, MINER)


def test_all_cards_are_replaced_at_once() -> None:
    assert counts(after("2x RTX 5090 instead of both").hardware) == {"RTX 5090": 2}


@pytest.mark.parametrize(
    ("text", "gpu", "ram"),
    [
        ("M3 Ultra 256GB instead", "M3 Ultra", 256),
        ("Ryzen AI Max+ 395 128GB instead", "8060S", 128),
        ("DGX Spark instead", "GB10", 128),
    ],
)
def test_a_machine_whose_gpu_shares_the_memory_replaces_the_whole_one(text: str, gpu: str, ram: int) -> None:
    whole = after(text, rigs.ONE_3090_DESKTOP).hardware
    assert gpu in resolve(whole).cards[0].name
    assert resolve(whole).ram_bytes >> 30 == ram
    assert "9 7950X" not in (resolve(whole).cpu_model or "")
    assert "-0" not in after(text, rigs.ONE_3090_DESKTOP).text  # a chip's own memory has no rate to be told


@pytest.mark.parametrize("text", ["+1 RTX 3090", "replace it with RTX 5090", "RTX 5090 instead"])
def test_a_mac_takes_no_other_gpu(text: str) -> None:
    with pytest.raises(InvalidInput, match="a Mac takes no other GPU"):
        after(text, rigs.MAC_STUDIO)


@pytest.mark.parametrize("text", ["What should I buy?", "what can I upgrade next"])
def test_what_to_buy_is_asked_of_the_best(text: str) -> None:
    assert asks_for_best(text)


def test_what_fits_today_and_not_with_the_change_no_longer_fits() -> None:
    _, (less,) = answered(QWEN, "q3_K_M", hardware=rigs.ONE_3090_DESKTOP, what_if=("64GB RAM",))
    assert less.text.startswith("64GB RAM: q3_K_M no longer fits, ")
    _, (card,) = answered(QWEN, "q2_K", hardware=rigs.LAPTOP_6GB, what_if=("+1 RTX 3090",))
    assert card.text.startswith("+1 RTX 3090: still does not fit, ")


@pytest.mark.full
def test_more_memory_where_all_fits_already_is_said_to_change_nothing() -> None:
    _, (more,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("256 GB more RAM",))
    assert "changes nothing" in more.text


def test_more_memory_makes_a_variant_with_more_bits_come_first() -> None:
    hardware = Hardware(
        gpus=[Gpu(name="RTX PRO 6000 Blackwell Workstation Edition")],
        cpu=rigs.TWO_5090_TWO_4090.cpu,
        ram=Ram(total_gb=64, type="DDR5", channels=8, mts=4800),
    )
    body, (more,) = answered(QWEN, "q3_K_M", "q6_K", hardware=hardware, what_if=("256 GB more RAM",))
    assert first(body).variant == "q3_K_M"
    assert only(more).also is not None
    assert "q6_K" in str(only(more).also)


@pytest.mark.full
def test_what_would_fit_is_answered_where_nothing_does() -> None:
    limits, asked = Constraints(engines=[EngineChoice("llama.cpp")]), ("+1 RTX 3090", "96 GB more RAM")
    body, (card, more) = answered(QWEN, "q2_K", hardware=rigs.LAPTOP_6GB, what_if=asked, limits=limits)
    assert not body.configs
    assert only(card).refused is not None
    assert "MiB too little" in card.text
    assert only(more).speed is not None
    assert "q2_K fits" in more.text


@pytest.mark.full
def test_an_upgrade_that_saves_nothing_is_not_among_the_best() -> None:
    limits = Constraints(engines=[EngineChoice("llama.cpp")])
    body, (best,) = answered(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=("best",), limits=limits)
    noticed = first(body).goal_seconds[1] * 0.01
    assert best.upgrades
    assert all((one.seconds_saved or 0) >= noticed for one in best.upgrades)
    assert "RAM" not in {one.component for one in best.upgrades}
    _, (nothing,) = answered("Qwen3-4B", "q4_k_m", hardware=rigs.ONE_3090_DESKTOP, what_if=("best",))
    assert (nothing.upgrades, nothing.text) == ([], "None of the usual upgrades saves 1 % of a request's time.")


@pytest.mark.full
def test_the_best_upgrade_is_first_in_a_table_with_its_gain_a_gib() -> None:
    """More RAM gains nothing where all fits: it did by 2 %, as only today's command was written in its short form."""
    asked = ("which single upgrade helps most", "512 GB more RAM")
    _, (best, more) = answered(R1, R1_IK, hardware=rigs.TWO_5090_TWO_4090, what_if=asked)
    saved = [u.seconds_saved for u in best.upgrades]
    assert saved == sorted(saved, key=lambda s: -(s or 0))
    assert [u.component for u in best.upgrades] == ["GPU", "GPU"]
    assert "changes nothing" in more.text
    clearly = best.upgrades[0].tg is not None and best.upgrades[0].tg.called
    assert best.text.startswith(best.upgrades[0].change if clearly else "None of the usual upgrades")
    assert "+1 NVIDIA GeForce RTX 5090" in {u.change for u in best.upgrades}
    assert all(u.tg_per_gib is not None for u in best.upgrades if u.component in ("GPU", "RAM"))
    assert "tried: " in best.restricted


@pytest.mark.full
def test_a_reserve_a_card_still_holds_with_one_more() -> None:
    limits = Constraints(reserve_mib=[2048, 512, 512, 512], engines=[EngineChoice("llama.cpp")])
    _, (more,) = answered(QWEN, "q4_K_M", hardware=rigs.TWO_5090_TWO_4090, what_if=("+1 RTX 3090",), limits=limits)
    assert only(more).speed is not None


def test_more_than_eight_questions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 8") as error:
        ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, what_if=["no GPU"] * 9)
    assert error.value.field == "what_if"


def test_a_card_beside_a_processor_s_own_gpu_is_used_alone() -> None:
    own = parse_hardware("Ryzen 7 8845HS, 32GB DDR5-5600")
    after = changed(own, resolve(own), "+1 RTX 4060")
    assert [gpu.name for gpu in after.hardware.gpus] == ["RTX 4060"]


def test_ram_is_offered_where_only_the_processor_s_own_gpu_computes_and_modules_are_sold() -> None:
    own, soldered = (parse_hardware(f"{name}, 32GB") for name in ("Ryzen 7 8845HS", "Ryzen AI Max+ 395"))
    assert "32 GB more RAM" in [one.text for one in usual(own, resolve(own))]
    assert not list(usual(soldered, resolve(soldered)))


def test_a_small_machine_to_buy_is_one_by_its_processor_and_ram() -> None:
    desktop = parse_hardware("RTX 3060, Ryzen 5 5600, 32GB DDR4-3200")
    other = changed(desktop, resolve(desktop), "Ryzen AI 9 HX 370 64GB LPDDR5X-7500").hardware
    assert [gpu.name for gpu in other.gpus] == ["AMD Radeon 890M"]
    swapped = changed(desktop, resolve(desktop), "Ryzen 7 8845HS").hardware
    assert [gpu.name for gpu in swapped.gpus] == ["RTX 3060"]
