"""The programs of proof: each holds, and each finds what was broken on purpose. `make proof` runs them one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.command import run
from tests.proof.program import NotHere
from tests.proof.programs import PROGRAMS
from tests.proof.stores import STORES


def _cases(*, weak: bool) -> Iterator[object]:
    for program in PROGRAMS.values():
        for store in (store for store in STORES if store in program.stores):
            for variant in program.weak if weak else ("",):
                marks = [pytest.mark.full, pytest.mark.timeout(5400), pytest.mark.xdist_group(f"proof-{program.name}")]
                yield pytest.param(program.name, store, variant, marks=marks)


@pytest.mark.parametrize(("program", "store", "weak"), list(_cases(weak=False)))
def test_what_is_promised_holds(program: str, store: str, weak: str) -> None:
    try:
        report = run(PROGRAMS[program], store, weak=weak, bounds={})
    except NotHere as reason:
        pytest.skip(str(reason))
    assert report.faults == []


@pytest.mark.parametrize(("program", "store", "weak"), list(_cases(weak=True)))
def test_what_is_broken_on_purpose_is_found(program: str, store: str, weak: str) -> None:
    try:
        report = run(PROGRAMS[program], store, weak=weak, bounds={})
    except NotHere as reason:
        pytest.skip(str(reason))
    assert report.faults, f"{program} did not find out {weak}: it proves nothing"


@pytest.mark.slow
def test_a_short_history_of_two_processes_is_linearisable() -> None:
    report = run(PROGRAMS["linearisable"], "sqlite", bounds={"events": 600, "processes": 2, "http": 0, "sessions": 2})
    assert report.faults == []
    assert report.figures["events"] >= 500  # type: ignore[operator]  # it is a count


@pytest.mark.slow
def test_a_short_storm_leaves_nothing_undone() -> None:
    report = run(PROGRAMS["chaos"], "sqlite", bounds={"runs": 60, "faults": 5, "concurrency": 4})
    assert report.faults == []
    assert report.figures["kills"] >= 1  # type: ignore[operator]  # it is a count
    assert report.figures["stops"] >= 1  # type: ignore[operator]  # it is a count
