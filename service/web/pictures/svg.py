"""What all pictures share: the frame that a screen reader reads as title and text, and paths of points."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup


def svg(key: str, size: tuple[int, int], title: str, spoken: str, parts: Iterable[Markup]) -> Markup:
    """Return a picture of `parts`. `key` makes the ids in it unique on a page; `spoken`: what it shows, in words."""
    head = Markup(
        "<svg class='curves' viewBox='0 0 {0} {1}' role='img' aria-labelledby='{2}-t {2}-d'>"
        "<title id='{2}-t'>{3}</title><desc id='{2}-d'>{4}</desc>"
    )
    return head.format(*size, key, title, spoken) + Markup("").join(parts) + Markup("</svg>")


def path(places: Iterable[tuple[float, float]]) -> str:
    """Return the `points` of a line through these places."""
    return " ".join(f"{x:g},{y:g}" for x, y in places)
