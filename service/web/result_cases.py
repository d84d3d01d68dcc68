"""What the web asks of the flows of results. Tests give it one of their own."""

from __future__ import annotations

from typing import Protocol

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
from service.wire.results import Result, ResultQuery, Results


class ResultFlows(Protocol):
    """The use cases of results and the leaderboard: all block, are called in a thread, and raise AdvisorError only."""

    def leaderboard(self, query: BoardQuery) -> Board:
        """Return a page of the leaderboard. Raises InvalidInput for a day or a cursor that is none."""
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
