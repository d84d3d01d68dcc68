"""What keeps an agent from working, as sentences for the person at the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from service.engine.errors import AdvisorError


class HostError(AdvisorError):
    """Base class: something on this machine is not as the agent needs it."""

    problem: ClassVar[str] = "host"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into a HostError that names the file."""
    try:
        yield
    except OSError as error:
        raise HostError(f"{path}: {error.strerror or error}") from None


class NotEnrolled(HostError):
    """This machine has no key, or one that the service does not know."""


class Unsafe(HostError):
    """The agent would run as root, or engines unconfined, and the policy does not allow it."""


class AlreadyRunning(HostError):
    """Another agent is using the same state folder."""


class ServiceError(HostError):
    """The service answered with an error, or with something outside the protocol."""

    def __init__(self, detail: str, *, status: int = 0, slug: str = "", choices: tuple[str, ...] = ()) -> None:
        super().__init__(detail, choices=choices)
        self.status = status
        self.slug = slug


class ServiceUnreachable(ServiceError):
    """No answer, or one that asks to come back later: a retry may help."""
