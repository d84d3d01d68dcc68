"""What the web asks of the flows of submissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from service.wire.results import Result
from service.wire.submissions import Correction, Preview, ResultChange, Submission, Submitted

if TYPE_CHECKING:
    from service.flows.accounts import Caller


class SubmissionFlows(Protocol):
    """The use cases of what people send: all block, are called in a thread, and raise AdvisorError only.

    `admit_new_repo` is called before work begins on a repo that was not read here yet, and may raise RateLimited.
    """

    def preview_submission(
        self, caller: Caller | None, asked: Submission, admit_new_repo: Callable[[], None]
    ) -> Preview:
        """Return what is understood of a submission, and what it lacks; nothing is kept."""
        ...

    def submit(
        self,
        caller: Caller | None,
        asked: Submission,
        idempotency_key: str | None,
        admit_new_repo: Callable[[], None],
    ) -> Submitted:
        """Return what a submission has become. Raises InvalidInput, IdempotencyKeyReused, NotAllowed."""
        ...

    def correct_result(
        self,
        caller: Caller | None,
        edit_key: str | None,
        result_id: str,
        asked: Correction,
        admit_new_repo: Callable[[], None],
    ) -> Result:
        """Return a result as its submitter corrects it. Raises ResultNotFound, NotAllowed, WrongKey, InvalidInput."""
        ...

    def delete_result(self, caller: Caller | None, edit_key: str | None, result_id: str) -> None:
        """Take a result back. Raises ResultNotFound, NotAllowed, WrongKey."""
        ...

    def result_history(self, result_id: str) -> list[ResultChange]:
        """Return what its submitter changed of a result. Raises ResultNotFound."""
        ...
