"""What the web asks of the flows of results. Tests give it one of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from service.web.submission_cases import SubmissionFlows
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

if TYPE_CHECKING:
    from service.flows.accounts import Caller


class ResultFlows(SubmissionFlows, Protocol):
    """The use cases of results and the leaderboard: all block, are called in a thread, and raise AdvisorError only."""

    def leaderboard(self, query: BoardQuery) -> Board:
        """Return a page of the leaderboard. Raises InvalidInput for a day or a cursor that is none."""
        ...

    def board_version(self) -> str:
        """Return what says whether `leaderboard` returns the same again."""
        ...

    def board_choices(self) -> BoardChoices:
        """Return what the leaderboard can be filtered by."""
        ...

    def model_page(self, slug: str, depth: int | None) -> ModelPage:
        """Return what is known of a model. Raises NotOnBoard, or InvalidInput for another depth than the classes."""
        ...

    def hardware_page(self, slug: str, depth: int | None) -> HardwarePage:
        """Return what a rig runs. Raises NotOnBoard, or InvalidInput for another depth than the classes."""
        ...

    def similar_results(self, result_id: str) -> list[BoardRow]:
        """Return results of the same model on the same and on like rigs."""
        ...

    def contributor(self, pseudonym: str) -> Contributor:
        """Return what somebody gave. Raises NotOnBoard."""
        ...

    def hosts_figures(self) -> list[HostFigures]:
        """Return what each public host has done."""
        ...

    def read_result(self, result_id: str) -> Result:
        """Return a result as everybody sees it. Raises ResultNotFound."""
        ...

    def read_result_log(self, result_id: str) -> str:
        """Return the reduced log of a result, empty where it has none. Raises ResultNotFound."""
        ...

    def list_results(self, query: ResultQuery) -> Results:
        """Return a page of results, the last received first. Raises InvalidInput for a day or cursor that is none."""
        ...

    def accuracy(self) -> Accuracy:
        """Return how far predictions were from what was measured."""
        ...

    def report_abuse(self, caller: Caller | None, result_id: str, said: AbuseReport) -> Reported:
        """Keep what somebody says is wrong with a result. Raises ResultNotFound."""
        ...

    def open_reports(self) -> list[OpenReport]:
        """Return the reports that no operator has closed."""
        ...

    def moderate(self, by: str, asked: Moderation) -> AuditEntry:
        """Do what an operator asks, and write it down. Raises InvalidInput."""
        ...

    def audit(self, subject: str | None) -> list[AuditEntry]:
        """Return what operators did, of one subject or all."""
        ...

    def list_dumps(self) -> Dumps:
        """Return the files with all results that there are."""
        ...

    def dump_path(self, name: str) -> Path:
        """Return where a dump lies. Raises DumpNotFound."""
        ...
