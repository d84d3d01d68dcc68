"""Pages about the operator: `/about`, `/privacy`, `/terms`, security.txt, and the form for removal requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from anyio import to_thread
from litestar import Response, Router, get, post

from service.engine.errors import AdvisorError
from service.errors import ResultNotFound
from service.flows.results import moderation
from service.settings import Settings
from service.web.http.types import HttpRequest
from service.web.pages import Form, converted, page, query_of, read_form
from service.web.services import AppServices, Services
from service.wire.problem import problem_of
from service.wire.results.dumps import LICENCE
from service.wire.results.moderation import RemovalRequest

_TITLES = {"about": "About this service", "privacy": "Privacy", "terms": "Terms of use"}
_MOST_BYTES = 64 << 10  # read of an operator's own page
_SECURITY_TXT_DAYS = 180  # RFC 9116 advises less than a year
_FIELDS = {"id": "result", "text": "text", "contact": "contact"}


@get(["/about", "/privacy", "/terms"])
async def about(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A page about the service: the operator's own text if there is one, else the shipped one."""
    name = request.url.path.strip("/")
    values: dict[str, Any] = {**_operator(services.settings), "settings": services.settings, "licence": LICENCE}
    own = await to_thread.run_sync(own_text, services.settings, name)
    if own is not None:
        return page(request, "own_page.html", title=_TITLES[name], blocks=blocks(own), **values)
    return page(request, f"{name}.html", **values)


def own_text(settings: Settings, name: str) -> str | None:
    """Return the operator's own text of a page, None if there is none."""
    if settings.pages_dir is None:
        return None
    try:
        return (settings.pages_dir / f"{name}.txt").read_bytes()[:_MOST_BYTES].decode(errors="replace")
    except FileNotFoundError:
        return None


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return a text as (kind, lines): a `heading` starts with `#`, each line of a `list` with `-`; anything else is a
    `paragraph`, which ends at an empty line."""
    kinds = [(_kind(line), line.strip()) for line in text.splitlines()]
    several = [(kind, [line for _, line in group]) for kind, group in groupby(kinds, key=lambda pair: pair[0])]
    found = []
    for kind, lines in several:
        shown = [line.lstrip("#-").strip() if kind != "paragraph" else line for line in lines]
        found += [(kind, [line]) for line in shown] if kind == "heading" else [(kind, shown)] if kind else []
    return found


def _kind(line: str) -> str:
    text = line.strip()
    return "heading" if text.startswith("#") else "list" if text.startswith("- ") else "paragraph" if text else ""


@get("/.well-known/security.txt", sync_to_thread=False)
def security_txt(request: HttpRequest, services: AppServices) -> Response[str]:
    """The contact for security reports (RFC 9116); 404 if the operator set none."""
    contact = services.settings.contact_uri
    if contact is None:
        return Response(
            "# The operator of this service has set no contact.\n", status_code=404, media_type="text/plain"
        )
    expires = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=_SECURITY_TXT_DAYS)
    lines = [
        f"Contact: {contact}",
        f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}",
        "Preferred-Languages: en",
        f"Canonical: {services.address(request, request.url.path)}",
        f"Policy: {services.address(request, '/about')}",
    ]
    return Response("\n".join(lines) + "\n", media_type="text/plain")


@get("/removal", sync_to_thread=False)
def ask_removal(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The form for requesting the removal of a result."""
    return _removal(request, services, Form({"result": query_of(request).get("result", "")[:300]}), 200)


@post("/removal", status_code=200)
async def asked_removal(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Store a removal request. Raises RateLimited."""
    await services.count_report(request)
    typed = await read_form(request)
    result_id = typed.value("result").partition("#")[0].partition("?")[0].rstrip("/").rpartition("/")[2][:64]
    try:
        asked = converted(typed.filled(("text", "contact")), RemovalRequest)
        kept = await services.run(moderation.ask_removal, None, result_id, asked)
    except AdvisorError as error:
        status = 422 if isinstance(error, ResultNotFound) else problem_of(error).status
        return _removal(request, services, typed.refused(error, _FIELDS), status)
    text = f"The operator of this service decides about it; should you ask about it, it is request `{kept.id}`."
    return page(request, "said.html", title="Asked for", text=text)


def _removal(request: HttpRequest, services: Services, form: Form, status: int) -> Response[bytes]:
    return page(request, "removal.html", status=status, form=form, **_operator(services.settings))


def _operator(settings: Settings) -> dict[str, str | None]:
    return {"operator": settings.operator, "contact": settings.contact_uri}


router = Router("/", route_handlers=[about, security_txt, ask_removal, asked_removal])
