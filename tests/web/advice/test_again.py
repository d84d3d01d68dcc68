"""The controls of an answer's card: what they change in the request that is asked again."""

from __future__ import annotations

import httpx
import pytest
from msgspec.structs import replace

from service.engine.errors import InvalidInput
from service.engine.goal import GoalRequest
from service.engine.hardware import Gpu
from service.flows.advice.requests import parse_request
from service.web.advice.ask_page import changed_request
from service.web.pages import Form
from service.wire.advice.advice import AdviceRequest
from tests.web.pages.site import body
from tests.web.world import READY_REPO, World

ASKED = parse_request(AdviceRequest(repo=READY_REPO, hardware="2x RTX 3090 + RTX 4090, 64GB")).canonical
HTML = {"accept": "text/html"}


def changed(**fields: str) -> AdviceRequest:
    return changed_request(ASKED, body().goal, Form(fields))


def test_without_a_change_the_request_is_the_same() -> None:
    assert parse_request(changed()).canonical == ASKED


def test_cpu_and_ram_take_the_place_of_what_was_known_and_the_rest_stays() -> None:
    machine = changed(cpu="Ryzen 9 7950X", ram="DDR5-5600 x2").hardware
    assert not isinstance(machine, str)
    assert machine.cpu
    assert "7950X" in (machine.cpu.model or "")
    assert machine.ram
    assert (machine.ram.total_gb, machine.ram.mts, machine.ram.channels) == (64, 5600, 2)
    assert [gpu.name for gpu in machine.gpus] == [gpu.name for gpu in ASKED.hardware.gpus]  # type: ignore[union-attr]


def test_a_monitor_is_on_one_card_of_several_alike() -> None:
    machine = changed(display="yes").hardware
    assert not isinstance(machine, str)
    shown = [(gpu.name, gpu.count, gpu.display) for gpu in machine.gpus]
    first = ASKED.hardware.gpus[0]  # type: ignore[union-attr]
    assert sum(count for _, count, display in shown if display) == 1
    assert sum(count for _, count, _ in shown) == 3
    assert shown[0][0] == first.name


def test_faster_keeps_the_use_and_drops_the_minimum() -> None:
    goal = changed(preset="fastest", context="8192").goal
    assert isinstance(goal, GoalRequest)
    assert (goal.preset, goal.context, goal.depth) == ("fastest", 8192, body().goal.depth)
    assert goal.min_tg is None


@pytest.mark.parametrize("fields", [{"context": "much"}, {"cpu": "RTX 4090"}, {"ram": "lots"}, {"preset": "slow"}])
def test_what_is_not_understood_is_said(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        changed(**fields)


def test_cards_that_can_be_told_apart_stay_together() -> None:
    ordered = replace(ASKED.hardware, gpus=[Gpu(name="RTX 3090", count=2, pci_order=[0, 1])])  # type: ignore[type-var]
    machine = changed_request(replace(ASKED, hardware=ordered), body().goal, Form({"display": "yes"})).hardware
    assert [(gpu.count, gpu.display) for gpu in machine.gpus] == [(2, True)]  # type: ignore[union-attr]


def test_the_page_asks_again(client: httpx.Client, world: World) -> None:
    world.put("one", "ready", configs=body().configs[:1])
    html = client.get("/advice/one").text
    assert 'name="of" value="one"' in html
    reply = client.post("/advice", data={"of": "one", "ram": "256GB", "scripted": "yes"}, headers=HTML)
    assert (reply.status_code, reply.headers["location"].split("#")[0]) == (303, f"/advice/{world.newest()}")
    wrong = client.post("/advice", data={"of": "one", "ram": "lots"}, headers=HTML)
    assert wrong.status_code == 422
    assert READY_REPO in wrong.text


def test_commands_are_for_the_shell_of_the_browsers_system(client: httpx.Client, world: World) -> None:
    world.put("one", "ready", configs=body().configs[:1])
    windows = client.get("/advice/one", headers={"user-agent": "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"})
    assert "For PowerShell" in windows.text
    assert "User-Agent" in windows.headers["vary"]
    assert "For bash" in client.get("/advice/one").text
    assert "For PowerShell" in client.get("/advice/one?shell=powershell").text
