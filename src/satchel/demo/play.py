"""The demo: four scenes over HTTP, played with servers on one store that are really killed.

What an agent did is checked against what the store or the file system holds, never against what its server says; what a
server must answer is checked by asking it.
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

from satchel.demo.process import ServerEnded
from satchel.demo.scenes import SCENES
from satchel.demo.show import Show, show_for
from satchel.demo.stage import Interlude, Stage


def run_demo(
    *,
    folder: Path | None = None,
    json: bool = False,
    keep: bool = False,
    store: str | None = None,
    interludes: Mapping[str, Interlude] | None = None,
) -> int:
    """Play all scenes. 0: every check passed; 1: one failed; 2: the folder cannot be used.

    ``folder`` must be absent or empty; without one, a temporary folder is used. What was made there is removed at the
    end unless ``keep``. ``store``: the URL of a store to play on, which must be one that processes can share; left out, a
    SQLite file in the folder. There the demo has a tenant of its own. With ``json`` stdout gets one document with all checks, and stderr the story. ``interludes``: see
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
    show = show_for(sys.stderr if json else sys.stdout)
    start = time.monotonic()
    try:
        stage = asyncio.run(_play(folder.resolve(), show, interludes, store, keep=keep))
    finally:
        if not keep:
            _remove(folder, all_of_it=made_here)
    seconds = time.monotonic() - start
    passed = all(check.ok for check in stage.checks)
    if json:
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(json_text.dumps(_document(stage, seconds=seconds, keep=keep), ensure_ascii=not is_utf8, indent=2))
    stage.show.summary(stage.checks, seconds=seconds)
    if not keep:
        stage.show.note("all that was made is removed again; --keep keeps it")
    else:
        stage.show.note(
            f"look into it: satchel sessions list --store {stage.shown_url} --tenant {stage.tenant} --user ada"
        )
    return 0 if passed else 1


async def _play(
    folder: Path, show: Show, interludes: Mapping[str, Interlude] | None, store: str | None, *, keep: bool
) -> Stage:
    stage = Stage(folder, show, interludes, store=store)
    show.note(f"Everything below is real: a store ({stage.shown_url}), servers, HTTP, tools, SIGKILL.")
    show.note("Only the agent's words are scripted, so that no model and no network is needed.")
    await stage.open()
    try:
        for number, play in enumerate(SCENES, start=1):
            try:
                await play(stage)
            except Exception as error:  # noqa: BLE001  # it is a failed check, and the other scenes still play
                stage.check(f"scene {number} plays to its end", expected="no error", found=_readable(error))
            finally:
                await stage.end_scene()
    finally:
        await stage.close(keep=keep)
    return stage


def _readable(error: Exception) -> str:
    if isinstance(error, ServerEnded):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _document(stage: Stage, *, seconds: float, keep: bool) -> dict[str, Any]:
    passed = sum(check.ok for check in stage.checks)
    return {
        "passed": passed == len(stage.checks),
        "counts": {"checks": len(stage.checks), "passed": passed, "failed": len(stage.checks) - passed},
        "seconds": round(seconds, 1),
        "store": stage.shown_url,
        "database": str(stage.database) if keep and stage.is_own_store else None,
        "checks": [check.to_dict() for check in stage.checks],
    }


def _remove(folder: Path, *, all_of_it: bool) -> None:
    for path in [folder] if all_of_it else list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
