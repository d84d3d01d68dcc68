"""Use cases of submissions, as the web calls them."""

from __future__ import annotations

from collections.abc import Callable

from service.flows import corrections, submissions
from service.flows.accounts import Caller
from service.flows.context import Context
from service.wire.results import Result
from service.wire.submissions import Correction, Preview, ResultChange, Submission, Submitted


class SubmissionCases:
    """What the web asks of what people send. Every method blocks; all raise AdvisorError only."""

    _context: Context

    def preview_submission(
        self, caller: Caller | None, asked: Submission, admit_new_repo: Callable[[], None]
    ) -> Preview:
        """See `service.flows.submissions.preview`."""
        return submissions.preview(self._context, caller, asked, admit_new_repo)

    def submit(
        self,
        caller: Caller | None,
        asked: Submission,
        idempotency_key: str | None,
        admit_new_repo: Callable[[], None],
    ) -> Submitted:
        """See `service.flows.submissions.submit`."""
        return submissions.submit(self._context, caller, asked, idempotency_key, admit_new_repo)

    def correct_result(
        self,
        caller: Caller | None,
        edit_key: str | None,
        result_id: str,
        asked: Correction,
        admit_new_repo: Callable[[], None],
    ) -> Result:
        """See `service.flows.corrections.correct`."""
        return corrections.correct(self._context, caller, edit_key, result_id, asked, admit_new_repo)

    def delete_result(self, caller: Caller | None, edit_key: str | None, result_id: str) -> None:
        """See `service.flows.corrections.delete`."""
        corrections.delete(self._context, caller, edit_key, result_id)

    def result_history(self, result_id: str) -> list[ResultChange]:
        """See `service.flows.corrections.history`."""
        return corrections.history(self._context, result_id)
