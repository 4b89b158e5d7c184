"""The table of promises in the README beside this file names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_promises_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (Path(__file__).parent / "README.md").read_text()))
    written: set[str] = set()
    for folder in (ROOT / "src" / "satchel" / "testing", ROOT / "tests"):
        for path in folder.rglob("*.py"):
            written |= set(re.findall(r"def (test_\w+)", path.read_text()))
    assert named
    assert named <= written, f"renamed or gone: {sorted(named - written)}"
