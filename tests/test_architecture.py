"""ARCHITECTURE.md says what is there: every floor and folder, and nothing else; and a module stays readable in one go."""

from __future__ import annotations

import re
from pathlib import Path

from tools.check_floors import FLOORS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "satchel"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

LINES = 400
LONGER = {"errors.py"}  # the page says why
WRITTEN_BY_A_TOOL = "sync/"


def top_level() -> set[str]:
    """Modules and packages right below `satchel`."""
    found = (path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem for path in found if not path.name.startswith("__")}


def test_the_floors_on_the_page_are_those_that_are_checked_and_those_in_the_tree() -> None:
    (drawn,) = re.findall(r"^```\n(5 .*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"[a-z_]+", drawn))
    checked = {module for _, modules in FLOORS for module in modules if module != "__main__"}
    assert checked == top_level()
    assert checked <= words


def test_every_folder_is_on_the_page_and_nothing_else() -> None:
    named = {name for line in PAGE.splitlines() if line.startswith("| `") for name in folders_of(line)}
    there = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")} - {"."}
    assert named == there


def folders_of(row: str) -> list[str]:
    """Of a row of the table: the names in its first cell."""
    return re.findall(r"`([^`]+)`", row.split("|")[1])


def test_a_module_has_at_most_400_lines() -> None:
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    longer = {name for name, length in lengths.items() if length > LINES and not name.startswith(WRITTEN_BY_A_TOOL)}
    assert longer == LONGER
