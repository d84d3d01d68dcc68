"""Use cases of results and the leaderboard, as the web calls them."""

from __future__ import annotations

from pathlib import Path

from service.flows import dumps, leaderboard, moderation, read_results
from service.flows.accounts import Caller
from service.flows.accuracy import KeptAccuracy
from service.flows.context import Context
from service.flows.submission_cases import SubmissionCases
from service.store import versions
from service.wire.accuracy import Accuracy
from service.wire.board import (
    Board,
    BoardChoices,
    BoardQuery,
    BoardRow,
    Contributor,
    HardwarePage,
    HostFigures,
    ModelPage,
)
from service.wire.dumps import Dumps
from service.wire.moderation import AbuseReport, AuditEntry, Moderation, OpenReport, Reported
from service.wire.results import Result, ResultQuery, Results


class ResultCases(SubmissionCases):
    """What the web asks of results. Every method blocks; all raise AdvisorError only."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._accuracy = KeptAccuracy()

    def leaderboard(self, query: BoardQuery) -> Board:
        """See `service.flows.leaderboard.leaderboard`."""
        return leaderboard.leaderboard(self._context, query)

    def board_version(self) -> str:
        """See `service.store.versions.of_results`."""
        return str(versions.of_results(self._context.engine))

    def board_choices(self) -> BoardChoices:
        """See `service.flows.leaderboard.choices`."""
        return leaderboard.choices(self._context)

    def model_page(self, slug: str, depth: int | None) -> ModelPage:
        """See `service.flows.leaderboard.model_page`."""
        return leaderboard.model_page(self._context, slug, depth)

    def hardware_page(self, slug: str, depth: int | None) -> HardwarePage:
        """See `service.flows.leaderboard.hardware_page`."""
        return leaderboard.hardware_page(self._context, slug, depth)

    def similar_results(self, result_id: str) -> list[BoardRow]:
        """See `service.flows.leaderboard.similar_results`."""
        return leaderboard.similar_results(self._context, result_id)

    def contributor(self, pseudonym: str) -> Contributor:
        """See `service.flows.leaderboard.contributor`."""
        return leaderboard.contributor(self._context, pseudonym)

    def hosts_figures(self) -> list[HostFigures]:
        """See `service.flows.leaderboard.hosts_figures`."""
        return leaderboard.hosts_figures(self._context)

    def read_result(self, result_id: str) -> Result:
        """See `service.flows.read_results.read_result`."""
        return read_results.read_result(self._context, result_id)

    def read_result_log(self, result_id: str) -> str:
        """See `service.flows.read_results.read_log`."""
        return read_results.read_log(self._context, result_id)

    def list_results(self, query: ResultQuery) -> Results:
        """See `service.flows.read_results.list_results`."""
        return read_results.list_results(self._context, query)

    def accuracy(self) -> Accuracy:
        """See `service.flows.accuracy.KeptAccuracy`."""
        return self._accuracy.read(self._context)

    def report_abuse(self, caller: Caller | None, result_id: str, said: AbuseReport) -> Reported:
        """See `service.flows.moderation.report_abuse`."""
        return moderation.report_abuse(self._context, caller, result_id, said)

    def open_reports(self) -> list[OpenReport]:
        """See `service.flows.moderation.open_reports`."""
        return moderation.open_reports(self._context)

    def moderate(self, by: str, asked: Moderation) -> AuditEntry:
        """See `service.flows.moderation.moderate`."""
        return moderation.moderate(self._context, by, asked)

    def audit(self, subject: str | None) -> list[AuditEntry]:
        """See `service.flows.moderation.audit`."""
        return moderation.audit(self._context, subject)

    def list_dumps(self) -> Dumps:
        """See `service.flows.dumps.list_dumps`."""
        return dumps.list_dumps(dumps.folder_of(self._context.settings))

    def dump_path(self, name: str) -> Path:
        """See `service.flows.dumps.path_of`."""
        return dumps.path_of(dumps.folder_of(self._context.settings), name)
