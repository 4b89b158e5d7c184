"""The demo's two agents. Both are scripted, and their tools are real."""

from __future__ import annotations

from pathlib import Path

from satchel.demo.coding import CodingTools
from satchel.demo.coding_script import CODING
from satchel.demo.data import DataTools
from satchel.demo.data_script import DATA
from satchel.engines import ScriptedEngine


def coding(folder: str | Path, *, seed: int = 0) -> ScriptedEngine:
    """Repairs the Flask project in ``folder`` (build_flask_project makes one)."""
    tools = CodingTools(folder)
    return ScriptedEngine(
        CODING,
        {
            "list_files": tools.list_files,
            "read_file": tools.read_file,
            "write_file": tools.write_file,
            "run_shell": tools.run_shell,
        },
        seed=seed,
    )


def data(database: str | Path, *, seed: int = 0) -> ScriptedEngine:
    """Asks the ads database at ``database`` (build_ads_database makes one)."""
    return ScriptedEngine(DATA, {"run_sql": DataTools(database).run_sql}, seed=seed)
