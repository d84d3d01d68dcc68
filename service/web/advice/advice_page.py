"""`/advice/{id}`: an advice as a page, live until it is final, with measured results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from litestar import Response, Router, get, post
from litestar.params import FromPath
from markupsafe import Markup

from service.engine.advice import AdvisedConfig, Shell
from service.engine.hardware import Hardware
from service.engine.hardware_text.form import to_shorthand
from service.engine.measured.identity import short_name
from service.engine.measured.summary import speed_at
from service.errors import WrongKey
from service.flows.advice import advise
from service.flows.measuring import validated
from service.web.http.types import HttpRequest
from service.web.pages import page, query_of, read_form
from service.web.pictures import MOST_CURVES, Curve, draw, draw_trade, memory_bars, token_bar
from service.web.services import AppServices
from service.wire.advice.advice import FINAL, Advice
from service.wire.advice.card import SHELLS, at_once_words, card_of, fact_of, fact_words, shell_of, speed_words
from service.wire.advice.config_text import how, standing
from service.wire.advice.files import files_of
from service.wire.advice.text import proposal_words, state_text
from service.wire.measuring import runs
from service.wire.measuring.validation_text import headline

_QUOTED = re.compile(r'\b[cg]pu "\s*([^"]*)"')  # as shorthand writes what it could take for something else
_REFRESH_SECONDS = 3  # for browsers without scripts


@get("/advice/{advice_id:str}", sync_to_thread=True)
def show(advice_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """An advice as it is now. Raises AdviceNotFound."""
    advice = advise.read_advice(services.context, advice_id)
    validations = validated.validations_of_advice(services.context, advice.id) if advice.configs else []
    running = [v.id for v in validations if v.state not in runs.FINAL]
    response = page(  # nosec B604 (`shell` is what a page calls the reader's shell)
        request,
        "advice.html",
        advice=advice,
        card=card_of(advice),
        shell=_shell(request, advice.hardware),
        files=files_of(advice),
        pictures=_pictures(advice),
        said=state_text(advice),
        rig=_rig(advice.hardware),
        now=_now(advice.hardware),
        again="/?" + urlencode({"repo": advice.repo, "paste": to_shorthand(advice.hardware)}),
        api=services.address(request, f"/v1/advice/{advice.id}"),
        follow=_followed(advice, running),
        refresh=_REFRESH_SECONDS,
        charts=_charts(advice.configs[:MOST_CURVES]),
        assumed=[fact_of(one, advice.hardware.gpus) for one in advice.assumed],
        fact_words=fact_words,
        speed_words=speed_words,
        at_once_words=at_once_words,
        validations=[(v, headline(v)) for v in reversed(validations)],
        how=how,
        standing=standing,
        proposal_words=proposal_words,
        speed_at=speed_at,
    )
    response.headers["Vary"] = "User-Agent"
    return response


@post("/advice/{advice_id:str}/deletion", status_code=200)
async def delete(advice_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Delete an advice with the key in the form. Raises AdviceNotFound or WrongKey."""
    key = (await read_form(request)).value("key")
    if not key:
        raise WrongKey("deleting needs the key that was given when the advice was made", field="key")
    await services.run(advise.delete_advice, advice_id, key[:200])
    return page(request, "said.html", title="Deleted", text="The advice and its request are gone.")


def _followed(advice: Advice, validations: Sequence[str]) -> str:
    """Return the address of the event stream to follow, empty if nothing is going on."""
    if advice.state not in FINAL:
        return f"/v1/advice/{advice.id}/events"
    return f"/v1/validations/{validations[-1]}/events" if validations else ""


def _now(hardware: Hardware) -> dict[str, str]:
    """Return what the machine's CPU and RAM were said to be, in a few words; empty for what was not said."""
    cpu, ram = Hardware(gpus=[], cpu=hardware.cpu), Hardware(gpus=[], ram=hardware.ram)
    return {"cpu": _rig(cpu).removeprefix("no GPU").lstrip(", "), "ram": _rig(ram).removeprefix("no GPU").lstrip(", ")}


def _rig(hardware: Hardware) -> str:
    """Return the machine in a few words, without makers' names."""
    parts = to_shorthand(hardware).split(", ")
    words = ", ".join(short_name(part).removeprefix("ram ") for part in parts).replace("x NVIDIA GeForce ", "x ")
    return _QUOTED.sub(r"\1", words)


def _shell(request: HttpRequest, hardware: Hardware) -> Shell:
    """Return the shell to show commands for: from the address, else the hardware's stated system, else the browser."""
    asked = query_of(request).get("shell", "")
    if asked in SHELLS:
        return "posix" if asked == "posix" else "powershell"
    browser: Shell = "powershell" if "Windows" in request.headers.get("user-agent", "") else "posix"
    return shell_of(hardware) if hardware.os else browser


def _pictures(advice: Advice) -> dict[str, Markup]:
    """Return the page's pictures by name; none if there is nothing to draw."""
    if not advice.configs:
        return {}
    first = advice.configs[0]
    return {
        "memory": memory_bars(first.devices),
        "trade": draw_trade(advice.configs),
        "token": token_bar(first.token_ms),
    }


def _charts(configs: Sequence[AdvisedConfig]) -> list[tuple[str, Markup]]:
    """Return charts of the configs' predicted speeds by depth, with the first config's interval."""
    if not any(len(c.speed) > 1 for c in configs):
        return []
    tg, pp = ([_curve(c, phase) for c in configs] for phase in ("tg", "pp"))
    return [
        ("Token generation (TG), t/s", draw(tg, "tg", "Predicted token generation in t/s by depth")),
        ("Prompt processing (PP), t/s", draw(pp, "pp", "Predicted prompt processing in t/s by depth")),
    ]


def _curve(config: AdvisedConfig, phase: str) -> Curve:
    at = {point.n_kv: point for point in (*config.deeper, *config.speed)}
    points = [at[depth] for depth in sorted(at)]

    def of(figure: str) -> list[float]:
        return [getattr(point, f"{phase}_{figure}") for point in points]

    depths = [point.n_kv for point in points]
    band = list(zip(depths, of("low"), of("high"), strict=True)) if config.rank == 1 else ()
    return Curve(f"#{config.rank} {config.variant} {config.engine}", list(zip(depths, of("tps"), strict=True)), band)


router = Router("/", route_handlers=[show, delete])
