"""`/accuracy`: the errors of predictions, with the worst cases."""

from __future__ import annotations

from litestar import Response, Router, get

from service.web.http.types import HttpRequest
from service.web.pages.render import page
from service.web.services import AppServices

_FIGURES = {"tg": "Token generation (TG)", "pp": "Prompt processing (PP)", "memory": "Memory of a device"}
_DIVISIONS = {
    "all": "All",
    "engine": "Engine",
    "backend": "Back end",
    "cards": "Cards",
    "family": "Family of models",
    "model": "Kind of model",
    "placement": "Where the weights are",
    "depth": "Depth",
    "month": "Month",
}
_PARTS = {
    "weights": "Weights",
    "kv": "Cache",
    "compute": "Compute buffer",
    "output": "Output buffer",
    "graph_splits": "Splits of the graph",
}
_STATES = {"unconfirmed": "Nobody known shows it", "open": "Open", "warned": "Answers say so"}


@get("/accuracy", sync_to_thread=True)
def accuracy(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Results compared with the predictions made before them."""
    found = services.accuracy.read(services.context)
    lines = {figure: [line for line in found.lines if line.figure == figure] for figure in _FIGURES}
    return page(
        request,
        services,
        "accuracy.html",
        found=found,
        figures=[(figure, title, lines[figure]) for figure, title in _FIGURES.items() if lines[figure]],
        divisions=_DIVISIONS,
        parts=_PARTS,
        states=_STATES,
    )


router = Router("/", route_handlers=[accuracy])
