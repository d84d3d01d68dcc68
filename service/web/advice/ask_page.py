"""`/`: the start page, with the form that asks for an advice."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from anyio import to_thread
from litestar import Response, Router, get, post
from msgspec.structs import asdict, replace

from service.engine.catalogue.rows import known_cpus, known_gpus
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.goal import Goal
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import to_shorthand
from service.engine.measured.identity import short_name
from service.engine.units import in_digits
from service.errors import AdviceNotFound
from service.flows.advice import advise, repos
from service.flows.advice.requests import as_goal
from service.web.documentation.operations import REPO, RIG
from service.web.http.types import HttpRequest
from service.web.pages import HTML, Form, converted, field_error, page, query_of, read_form
from service.web.services import AppServices, Services
from service.wire.advice.advice import AdviceRequest
from service.wire.problem import problem_of

_NUMBERS = {
    **{name: f"goal.{name}" for name in ("prompt", "output", "depth", "context", "parallel", "min_tg", "min_pp")},
    **{name: f"constraints.{name}" for name in ("min_bpw", "max_bpw", "max_ram_gib", "reserve_mib")},
}
_TOKENS = ("prompt", "output", "depth", "context")
_TEXTS = {
    "revision": "revision",
    "preset": "goal.preset",
    "models_dir": "constraints.models_dir",
    "current_command": "constraints.current_command",
}
# The form's field for each path in the request, to place errors.
_FIELDS = {
    **{path: name for name, path in (_NUMBERS | _TEXTS).items()},
    "repo": "repo",
    "hardware": "gpus",
    "hardware.cpu": "cpu",
    "hardware.ram": "ram",
    "goal": "preset",
    "constraints.engines": "engine",
    "constraints.variants": "variants",
    "constraints.images": "images",
    "what_if": "what_if",
}
_MORE = (*_NUMBERS, "revision", "models_dir", "current_command", "engine", "variants", "what_if")
_MOST_REPOS = 100
_READ_SECONDS = 4  # for which the page with the key is shown; the advice takes longer anyway


@get("/", sync_to_thread=True)
def start(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The start page; the query prefills the form."""
    return _start(request, services, Form(query_of(request)), 200)


@post("/advice", status_code=200)
async def ask(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Request an advice and redirect to it; an error is shown at its field, with everything that was typed.

    Without scripts, a page with the deletion key comes first: browsers do not reload an address with a fragment, so a
    waiting advice opened with the key in its address would never refresh.
    """
    form = await read_form(request)
    admission = services.admission(request)
    try:
        wanted = await to_thread.run_sync(_asked, services, form)
        asked = await services.run(advise.request_advice, wanted, admission, services.payer(request, None))
    except AdviceNotFound:
        raise
    except AdvisorError as error:
        typed = await to_thread.run_sync(_typed, services, form)
        wrong = Form(typed, (field_error(error, _fields(form)),))
        return await to_thread.run_sync(_start, request, services, wrong, problem_of(error).status)
    address = f"/advice/{asked.advice.id}"
    if asked.delete_key and not form.value("scripted"):
        return page(request, "asked.html", to=address, key=asked.delete_key, seconds=_READ_SECONDS)
    key = f"#key={asked.delete_key}" if asked.delete_key else ""  # a fragment appears in no log
    return Response(b"", status_code=303, media_type=HTML, headers={"Location": address + key})


def _asked(services: Services, form: Form) -> AdviceRequest:
    """Return the request made by the start page's form, or by changes to an advice (`of`)."""
    if not (of := form.value("of")):
        return advice_request(form)
    return changed_request(advise.asked_for(services.context, of), advise.read_advice(services.context, of).goal, form)


def _typed(services: Services, form: Form) -> dict[str, str]:
    """Return what to fill into the start page's form again; for changes to an advice, also its repo and hardware."""
    if not (of := form.value("of")):
        return dict(form.values)
    asked = advise.asked_for(services.context, of)
    rig = asked.hardware if isinstance(asked.hardware, str) else to_shorthand(asked.hardware)
    return {"repo": asked.repo, "paste": rig, **form.values}


def _start(request: HttpRequest, services: Services, form: Form, status: int) -> Response[bytes]:
    gpus, cpus = _catalogue()
    return page(
        request,
        "start.html",
        status=status,
        form=form,
        more=any(form.value(name) or form.error(name) for name in _MORE),
        repos=repos.known_repos(services.context, _MOST_REPOS),
        gpus=gpus,
        cpus=cpus,
        address=services.address(request, ""),
        body=json.dumps({"repo": REPO, "hardware": RIG}),
        repo=REPO,
        rig=RIG,
    )


@cache
def _catalogue() -> tuple[list[str], list[str]]:
    """Return the catalogue's GPUs and CPUs by their usual names."""
    gpus = dict.fromkeys(short_name(row.name) for row in known_gpus())
    return list(gpus), list(dict.fromkeys(row.name for row in known_cpus()))


def advice_request(form: Form) -> AdviceRequest:
    """Return the request made by a form. Raises InvalidInput with the path of the wrong field."""
    asked: dict[str, Any] = {"repo": form.value("repo"), "hardware": hardware_text(form), "goal": {}, "constraints": {}}
    for name, path in (_NUMBERS | _TEXTS).items():
        if text := form.value(name):
            parent, _, last = path.rpartition(".")
            (asked[parent] if parent else asked)[last] = in_digits(text) if name in _TOKENS else text
    if engine := form.value("engine"):
        asked["constraints"]["engines"] = [{"name": engine}]
    if variants := form.value("variants"):
        asked["constraints"]["variants"] = [name for name in variants.replace(",", " ").split() if name]
    if form.value("images"):
        asked["constraints"]["images"] = True
    asked["what_if"] = [line.strip() for line in form.value("what_if").split("\n") if line.strip()]
    return _decoded(asked)


def hardware_text(form: Form) -> str:
    """Return the hardware as one text: shorthand from the short fields, then what was pasted."""
    short = ", ".join(said for said in (form.value("gpus"), form.value("cpu"), _ram(form)) if said)
    return "\n".join(text for text in (short, form.value("paste")) if text)


def _ram(form: Form) -> str:
    """Return the text of the RAM field, in which `64` and `4x16` can only mean GB of RAM."""
    return re.sub(r"^(\d{1,2}\s?[x*]\s?)?(\d{1,4})$", r"\1\2GB RAM", form.value("ram"))


def _decoded(asked: dict[str, Any]) -> AdviceRequest:
    for name, what in (("repo", "name a Hugging Face repo"), ("hardware", "name the GPUs, or write `no GPU`")):
        if not asked[name]:
            raise InvalidInput(what, field=name)
    return converted(asked, AdviceRequest)


def _fields(form: Form) -> dict[str, str]:
    """Return the field for each path; hardware errors go to the paste if that is all that was filled in."""
    pasted = form.value("paste") and not form.value("gpus")
    return {**_FIELDS, "hardware": "paste"} if pasted else _FIELDS


router = Router("/", route_handlers=[start, ask])


def changed_request(asked: AdviceRequest, goal: Goal | None, form: Form) -> AdviceRequest:
    """Return `asked` with the form's changes to CPU, RAM, display, context and preset. `goal`: the answered one.

    Raises InvalidInput and its subclasses.
    """
    return replace(asked, hardware=_hardware(asked.hardware, form), goal=_goal(asked, goal, form))


def _goal(asked: AdviceRequest, goal: Goal | None, form: Form) -> Any:
    stated: dict[str, Any] = asdict(as_goal(asked.goal))
    if (preset := form.value("preset")) and goal is not None:  # another order, for the same use
        stated = {**stated, **asdict(goal), "preset": preset, "min_tg": None, "min_pp": None}
    if context := form.value("context"):
        stated["context"] = in_digits(context)
    return converted({"goal": stated, "repo": asked.repo, "hardware": "no GPU"}, AdviceRequest).goal


def _hardware(machine: Hardware | str, form: Form) -> Hardware:
    known = parse_hardware(machine) if isinstance(machine, str) else machine
    said = [text for text in (form.value("cpu"), _ram(form)) if text]
    if said:
        host = parse_hardware(", ".join(["no GPU", *said]))
        if host.gpus:
            raise InvalidInput(
                "this field takes the CPU or RAM: to change GPUs, ask again from the start", field="hardware.cpu"
            )
        for name, found in (("cpu", host.cpu), ("ram", host.ram)):
            if form.value(name) and found is None:
                raise InvalidInput(f"{form.value(name)[:80]!r} is not understood", field=f"hardware.{name}")
        ram = {name: value for name, value in asdict(host.ram or Ram()).items() if value is not None}
        known = replace(known, cpu=host.cpu or known.cpu, ram=replace(known.ram or Ram(), **ram))
    return replace(known, gpus=_with_display(known.gpus)) if form.value("display") else known


def _with_display(gpus: list[Gpu]) -> list[Gpu]:
    """Mark the first card as driving a display; of identical cards, only one of them if they can be told apart."""
    if not gpus:
        return gpus
    first, rest = gpus[0], gpus[1:]
    if first.count > 1 and not (first.uuids or first.pci_order or first.device_order):
        return [replace(first, count=1, display=True), replace(first, count=first.count - 1), *rest]
    return [replace(first, display=True), *rest]
