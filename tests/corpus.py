"""One test for a whole corpus: every case is checked, and all that fail are reported together.

For checks that are quicker than what pytest needs to collect, schedule and report a test of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def for_each(
    cases: Iterable[T] | Callable[[], Iterable[T]], name: Callable[[T], str] = str
) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Return a decorator that makes a check of one case a test of all `cases`.

    `cases` may be a function, which is called when the test runs. `name` says in a failure which case it was. A corpus
    without cases fails.
    """

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            corpus = list(cases() if callable(cases) else cases)
            failures = []
            for case in corpus:
                try:
                    check(case)
                except Exception as error:
                    failures.append(f"{name(case)}: {type(error).__name__}: {error}")
            if failures or not corpus:
                shown = "\n".join(failures[:50])
                pytest.fail(f"{len(failures)} of {len(corpus)} cases failed\n{shown}", pytrace=False)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
