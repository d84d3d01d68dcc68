"""`/advice/{id}`: an advice as a page, live until it is final, with what was measured of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from litestar import Request, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from markupsafe import Markup

from service.engine.advice import AdvisedConfig
from service.engine.hardware_text import to_shorthand
from service.engine.measured import speed_at
from service.errors import AdviceNotFound, WrongKey
from service.web.curves import MOST_CURVES, Curve, draw
from service.web.pages.forms import read_form
from service.web.pages.render import page
from service.web.services import Services
from service.wire.advice import FINAL, Advice
from service.wire.text import how, standing, state_text
from service.wire.validation_text import headline

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFRESH_SECONDS = 3  # of a browser without scripts
_VALIDATED = ("done", "cancelled")


@get("/advice/{advice_id:str}", sync_to_thread=True)
def show(
    advice_id: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[bytes]:
    """An advice as it is now. Raises AdviceNotFound."""
    advice = services.flows.read_advice(_checked(advice_id))
    validations = services.flows.validations_of_advice(advice.id) if advice.configs else []
    running = [v.id for v in validations if v.state not in _VALIDATED]
    return page(
        request,
        services,
        "advice.html",
        advice=advice,
        said=state_text(advice),
        rig=to_shorthand(advice.hardware),
        again=_again(advice),
        api=services.address(request, f"/v1/advice/{advice.id}"),
        follow=_followed(advice, running),
        refresh=_REFRESH_SECONDS,
        charts=_charts(advice.configs[:MOST_CURVES]),
        validations=[(v, headline(v)) for v in reversed(validations)],
        how=how,
        standing=standing,
        speed_at=speed_at,
    )


@post("/advice/{advice_id:str}/deletion", status_code=200)
async def delete(
    advice_id: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[bytes]:
    """Delete an advice with the key in the form. Raises AdviceNotFound or WrongKey."""
    key = (await read_form(request)).value("key")
    if not key:
        raise WrongKey("deleting takes the key that was given when the advice was made", field="key")
    await to_thread.run_sync(services.flows.delete_advice, _checked(advice_id), key[:200])
    return page(request, services, "said.html", title="Deleted", text="The advice and its request are gone.")


def _checked(advice_id: str) -> str:
    if not _ID.fullmatch(advice_id):
        raise AdviceNotFound("there is no advice with this id")
    return advice_id


def _followed(advice: Advice, validations: Sequence[str]) -> str:
    """The stream of what goes on, empty where nothing does."""
    if advice.state not in FINAL:
        return f"/v1/advice/{advice.id}/events"
    return f"/v1/validations/{validations[-1]}/events" if validations else ""


def _again(advice: Advice) -> str:
    """The form with this request typed in, as far as short fields hold it."""
    return "/?" + urlencode({"repo": advice.repo, "paste": to_shorthand(advice.hardware)})


def _charts(configs: Sequence[AdvisedConfig]) -> list[tuple[str, Markup]]:
    """The predicted speeds of the configs against depth; the first one's with its interval."""
    if not any(len(c.speed) > 1 for c in configs):
        return []
    tg, pp = ([_curve(c, phase) for c in configs] for phase in ("tg", "pp"))
    return [
        ("Token generation (TG), t/s", draw(tg, "tg", "Predicted token generation in t/s by depth")),
        ("Prompt processing (PP), t/s", draw(pp, "pp", "Predicted prompt processing in t/s by depth")),
    ]


def _curve(config: AdvisedConfig, phase: str) -> Curve:
    def of(figure: str) -> list[float]:
        return [getattr(point, f"{phase}_{figure}") for point in config.speed]

    depths = [point.n_kv for point in config.speed]
    band = list(zip(depths, of("low"), of("high"), strict=True)) if config.rank == 1 else ()
    return Curve(f"#{config.rank} {config.variant} {config.engine}", list(zip(depths, of("tps"), strict=True)), band)


router = Router("/", route_handlers=[show, delete])
