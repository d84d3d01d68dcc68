"""Cells of CSV files: text that a spreadsheet would calculate is text."""

import pytest

from service.wire.results.results_table import as_text


@pytest.mark.parametrize("value", ["=1+1", "\uff1d1+1", " @sum", "\x00-1", "\u200b+1", "\uff20a"])
def test_no_cell_is_a_formula(value: str) -> None:
    assert as_text(value).startswith("'")


def test_other_text_stays() -> None:
    assert as_text("Q4_K_M = good") == "Q4_K_M = good"
