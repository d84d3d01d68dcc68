"""What the web asks of the flows. `create_app` takes anything of this shape; tests give it one of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from service.wire.advice import Advice, AdviceRequest
from service.wire.check import Checked, CheckRequest
from service.wire.hardware import ParsedHardware
from service.wire.health import Readiness
from service.wire.repo import RepoView

if TYPE_CHECKING:
    from service.flows.advise import Requested


class Flows(Protocol):
    """The use cases. All but `progress` block, and are called in a thread; all raise AdvisorError only.

    `admit_new_repo` is called before work begins on a repo that was not read here yet, and may raise RateLimited.
    """

    def request_advice(self, request: AdviceRequest, admit_new_repo: Callable[[], None]) -> Requested:
        """Return a finished advice, or one that has been queued for this request."""
        ...

    def read_advice(self, advice_id: str) -> Advice:
        """Return the advice as it is now. Raises AdviceNotFound."""
        ...

    def delete_advice(self, advice_id: str, key: str) -> None:
        """Delete an advice. Raises AdviceNotFound or WrongKey."""
        ...

    def inspect(
        self, repo: str, revision: str | None, variant: str | None, admit_new_repo: Callable[[], None]
    ) -> RepoView:
        """Return a repo's variants and the model of one of them, reading what was not read yet."""
        ...

    def check(self, request: CheckRequest, admit_new_repo: Callable[[], None]) -> Checked:
        """Return what is known of a command, reading the header of its variant if it was not read yet."""
        ...

    def parse_hardware(self, text: str) -> ParsedHardware:
        """Return what a text is understood as. Raises UnknownHardware or InvalidHardware."""
        ...

    def known_gpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's GPUs."""
        ...

    def known_cpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's CPUs."""
        ...

    def readiness(self) -> Readiness:
        """Return which parts of the service answer."""
        ...

    def progress(self, advice_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen to an advice for the length of a block: whatever workers publish, each a hint to read it again."""
        ...
