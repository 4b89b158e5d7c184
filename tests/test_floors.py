from pathlib import Path

import pytest

from tools.check_floors import find_violations, main

ROOT = Path(__file__).parent.parent


def plant(folder: Path, **files: str) -> Path:
    """A package `satchel` with these files; `stores__memory="…"` becomes `stores/memory.py`."""
    package = folder / "satchel"
    package.mkdir()
    (package / "__init__.py").write_text("from satchel.cli import main\n")
    for name, source in files.items():
        path = package / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return package


def test_imports_of_satchel_go_down_only() -> None:
    assert [str(violation) for violation in find_violations(ROOT / "src" / "satchel")] == []


def test_an_import_that_goes_up_is_found_with_its_file_and_line(tmp_path: Path) -> None:
    package = plant(
        tmp_path, errors="", sessions="", store="import json\nfrom satchel.sessions import SessionManager\n"
    )
    (violation,) = find_violations(package)
    assert (violation.path, violation.line) == (package / "store.py", 2)
    assert "satchel.store (floor 2) imports satchel.sessions (floor 3b)" in violation.reason


@pytest.mark.parametrize(
    "source",
    [
        "import satchel.http.app",
        "from satchel.http import app",
        "from satchel import http",
        "from . import http",
        "from .http.app import App",
        "def late():\n    from satchel.http import app",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from satchel.http import app",
        "import importlib\nimportlib.import_module('satchel.http')",
    ],
)
def test_no_way_of_writing_an_import_escapes(tmp_path: Path, source: str) -> None:
    package = plant(tmp_path, http____init__="", http__app="", commit=source)
    (violation,) = find_violations(package)
    assert "(floor 3a) imports satchel.http" in violation.reason


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("stores__sqlite", "from satchel.commit import Committer"),
        ("context", "from satchel.stores.sqlite import SqliteStore"),
        ("stores__memory", "from satchel.stores import sqlite"),
        ("stores__memory", "from .sqlite import SqliteStore"),
        ("stores__memory", "from satchel.stores import SqliteStore"),
    ],
)
def test_stores_know_neither_each_other_nor_the_commit(tmp_path: Path, name: str, source: str) -> None:
    package = plant(tmp_path, **{"commit": "", "stores____init__": "", "stores__sqlite": "", name: source})
    assert len(find_violations(package)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "domain__run",
            "from satchel.domain import message\nfrom satchel.errors import RunActive\nfrom . import message",
        ),
        ("commit", "from satchel.context import Window\nfrom satchel import errors, store"),
        ("stores__sqlite", "from satchel.store import Change\nfrom satchel.domain.run import Run\nimport sqlite3"),
        ("stores____init__", "from satchel.stores.memory import MemoryStore"),
        ("runs", "from satchel.sessions import SessionManager\nfrom satchel.stores.memory import MemoryStore"),
        ("cli", "import satchel\nfrom satchel import SessionManager\nfrom satchel.http.app import app"),
    ],
)
def test_imports_that_go_down_or_stay_on_their_floor_are_free(tmp_path: Path, name: str, source: str) -> None:
    others = dict.fromkeys(["errors", "store", "sessions", "domain____init__", "domain__message", "stores__memory"], "")
    assert find_violations(plant(tmp_path, **(others | {name: source}))) == []


def test_public_names_are_not_imported_below_floor_4(tmp_path: Path) -> None:
    package = plant(tmp_path, runs="from satchel import SessionManager", sync="from satchel import SessionManager")
    (violation,) = find_violations(package)
    assert violation.path.name == "runs.py"


def test_a_module_without_a_floor_is_an_error(tmp_path: Path) -> None:
    package = plant(tmp_path, helpers="", commit="from satchel.helpers import first")
    reasons = [violation.reason for violation in find_violations(package)]
    assert len(reasons) == 2
    assert any("satchel.helpers is new: say on which floor it lives" in reason for reason in reasons)


def test_explain_prints_the_floors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--explain"]) == 0
    assert "0  errors" in capsys.readouterr().out
