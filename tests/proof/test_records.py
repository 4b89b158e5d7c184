"""What the page says is what the programs wrote."""

from __future__ import annotations

from tests.proof.programs import PROGRAMS
from tests.proof.records import PAGE, read, shown


def test_the_figures_of_the_page_are_those_that_were_written() -> None:
    records = read()
    assert shown(records) in PAGE.read_text()
    assert {one.program for one in records} == set(PROGRAMS)
    assert all(one.is_good for one in records)


def test_every_program_is_on_the_page() -> None:
    assert all(f"`{name}`" in PAGE.read_text() for name in PROGRAMS)
