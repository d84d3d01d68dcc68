"""Use cases of submissions, as the web calls them."""

from __future__ import annotations

from collections.abc import Callable

from service.flows import submissions
from service.flows.accounts import Caller
from service.flows.context import Context
from service.wire.submissions import Preview, Submission, Submitted


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
