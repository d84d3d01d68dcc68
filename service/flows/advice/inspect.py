"""What a repo holds: its variants, and the model of one of them."""

from __future__ import annotations

from collections.abc import Callable

from service.flows.advice.reading import read_models
from service.flows.advice.repo_view import view
from service.flows.advice.repos import listed
from service.flows.context import Context
from service.hub.references import parse_reference
from service.hub.variants import ANY_NUMBER, choose
from service.wire.advice.repo import RepoView, model_view


def inspect(
    context: Context,
    repo: str,
    revision: str | None = None,
    variant: str | None = None,
    admit_new_repo: Callable[[], None] = lambda: None,
) -> RepoView:
    """Return a repo's variants and the model of one of them, `variant` or else the first.

    `admit_new_repo` is called before any work on a repo never read here, and may raise. Raises InvalidInput,
    UnknownVariant and the Hub's errors.
    """
    reference = parse_reference(repo, revision)
    with listed(context, reference, admit_new_repo) as listing:
        chosen = choose(listing, reference, [variant] if variant else None, ANY_NUMBER, "variant")[:1]
        read = read_models(context.hub, listing, chosen).variants[0]
    return view(listing, reference, model_view(read.name, read.model))
