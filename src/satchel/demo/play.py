"""The demo: four scenes on one SQLite file, with an agent in processes that are really killed.

Every check is computed here from what the store or the file system holds, never from what an agent's process says.
"""

from __future__ import annotations

import asyncio
import json as json_text
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.demo.process import ProcessEnded
from satchel.demo.scenes import SCENES
from satchel.demo.show import show_for
from satchel.demo.stage import Interlude, Stage


def run_demo(
    *,
    folder: Path | None = None,
    json: bool = False,
    keep: bool = False,
    interludes: Mapping[str, Interlude] | None = None,
) -> int:
    """Play all scenes. 0: every check passed; 1: one failed; 2: the folder cannot be used.

    ``folder`` must be absent or empty; without one, a temporary folder is used. What was made there is removed at the
    end unless ``keep``. With ``json`` stdout gets one document with all checks, and stderr the story. ``interludes``: see
    Stage.
    """
    made_here = folder is None or not folder.exists()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="satchel-demo-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            print(f"satchel demo: {folder} is not empty; name a new folder", file=sys.stderr)
            return 2
    except OSError as error:
        print(f"satchel demo: {folder}: {error.strerror}", file=sys.stderr)
        return 2
    stage = Stage(folder.resolve(), show_for(sys.stderr if json else sys.stdout), interludes)
    start = time.monotonic()
    try:
        asyncio.run(_play(stage))
    finally:
        if not keep:
            _remove(stage.folder, all_of_it=made_here)
    seconds = time.monotonic() - start
    passed = all(check.ok for check in stage.checks)
    if json:
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(json_text.dumps(_document(stage, seconds=seconds, keep=keep), ensure_ascii=not is_utf8, indent=2))
    stage.show.summary(stage.checks, seconds=seconds)
    if not keep:
        stage.show.note("all that was made is removed again; --keep keeps it")
    else:
        stage.show.note(f"the database is {stage.database}")
        stage.show.note(f"look into it: satchel sessions list --store {stage.url} --tenant demo --user ada")
    return 0 if passed else 1


async def _play(stage: Stage) -> None:
    stage.show.note(f"Everything below is real: a SQLite file ({stage.database}), processes, tools, SIGKILL.")
    stage.show.note("Only the agent's words are scripted, so that no model and no network is needed.")
    for number, play in enumerate(SCENES, start=1):
        try:
            await play(stage)
        except Exception as error:  # noqa: BLE001  # it is a failed check, and the other scenes still play
            stage.check(f"scene {number} plays to its end", expected="no error", found=_readable(error))
        finally:
            await stage.end_processes()


def _readable(error: Exception) -> str:
    if isinstance(error, ProcessEnded):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _document(stage: Stage, *, seconds: float, keep: bool) -> dict[str, Any]:
    passed = sum(check.ok for check in stage.checks)
    return {
        "passed": passed == len(stage.checks),
        "counts": {"checks": len(stage.checks), "passed": passed, "failed": len(stage.checks) - passed},
        "seconds": round(seconds, 1),
        "database": str(stage.database) if keep else None,
        "checks": [check.to_dict() for check in stage.checks],
    }


def _remove(folder: Path, *, all_of_it: bool) -> None:
    for path in [folder] if all_of_it else list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
