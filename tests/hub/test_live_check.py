"""What `make live-check` expects of the real Hub is what the local one does, and it sees what differs."""

from __future__ import annotations

import pytest

from scripts.live_check import MISSING, findings
from tests.hub.conftest import TINY
from tests.local_hub import Fault, LocalHub

GATED = "local/gated-GGUF"


def differing(local_hub: LocalHub) -> list[str]:
    return [f.what for f in findings(local_hub.endpoint, None, (TINY,), GATED, MISSING) if not f.as_expected]


def test_the_local_hub_is_as_the_check_expects(local_hub: LocalHub) -> None:
    assert differing(local_hub) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (Fault("ignore-range", "cdn", TINY), "a range at 4096"),
        (Fault("status", "resolve", TINY, status=404), "the redirect"),
        (Fault("status", "api", GATED, status=404), "errors"),
    ],
)
def test_what_differs_is_named(local_hub: LocalHub, fault: Fault, what: str) -> None:
    local_hub.fail(fault)
    assert any(what in line for line in differing(local_hub))
