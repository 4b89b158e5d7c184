"""The last figures of each program: docs/reliability.json keeps them, docs/reliability.md shows them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec

from tests.proof.program import Program, Report
from tests.proof.stores import versions

DOCS = Path(__file__).parent.parent.parent / "docs"
FIGURES = DOCS / "reliability.json"
PAGE = DOCS / "reliability.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``weak``: what was broken on purpose; "" for Satchel as it is."""

    program: str
    store: str
    weak: str
    is_good: bool
    faults: int
    figures: Mapping[str, int | float | str]
    seconds: float
    date: str
    machine: str
    versions: Mapping[str, str]


def write(program: Program, store: str, weak: str, report: Report) -> None:
    """In place of the former of its kind."""
    made = Record(
        program=program.name,
        store=store,
        weak=weak,
        is_good=bool(report.faults) == bool(weak),
        faults=len(report.faults),
        figures=report.figures,
        seconds=round(report.seconds, 1),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        versions={"satchel": metadata.version("satchel"), "python": platform.python_version(), **versions()},
    )
    kept = {(one.program, one.store, one.weak): one for one in read()}
    kept[made.program, made.store, made.weak] = made
    records = [kept[key] for key in sorted(kept)]
    FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{shown(records)}\n{END}{rest.partition(END)[2]}")


def read() -> list[Record]:
    return msgspec.json.decode(FIGURES.read_bytes(), type=list[Record]) if FIGURES.exists() else []


def shown(records: list[Record]) -> str:
    """A table: each program on each store, and which of its weak variants it found out."""
    rows = [
        "| program | store | what was done, and what was seen | it took | broken on purpose, and found out |",
        "|---|---|---|---|---|",
    ]
    for one in (one for one in records if not one.weak):
        weak = [other for other in records if other.weak and (other.program, other.store) == (one.program, one.store)]
        found = ", ".join(f"{other.weak}{'' if other.is_good else ' **was not**'}" for other in weak)
        figures = ", ".join(f"{name} {_number(value)}" for name, value in one.figures.items())
        verdict = "" if one.is_good else f"**{one.faults} faults:** "
        rows.append(f"| `{one.program}` | {one.store} | {verdict}{figures} | {one.seconds:.0f} s | {found} |")
    return "\n".join([*rows, "", *_where(records)])


def _where(records: list[Record]) -> list[str]:
    """On which days and machines, and by what versions: each once."""
    days: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    for one in records:
        days.setdefault(one.machine, []).append(one.date)
        for name, version in one.versions.items():
            found.setdefault(name, []).append(version)
    versions = ", ".join(f"{name} {' and '.join(sorted(set(seen)))}" for name, seen in found.items())
    spans = {machine: sorted({*dates}) for machine, dates in days.items()}
    return [
        f"Seen {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''} on {machine}; {versions}."
        for machine, dates in sorted(spans.items())
    ]


def _number(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int | float) else value
