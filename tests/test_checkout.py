"""What is left in a checkout by playing with it is nothing that somebody could commit."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satchel.http.serve import key_file_of

ROOT = Path(__file__).parent.parent


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


def test_what_a_server_leaves_beside_its_store_is_ignored_and_above_all_its_key(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("this machine has no git")
    git(tmp_path, "init", "--quiet")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    serve = [sys.executable, "-m", "satchel", "serve", "--port", "0"]
    process = subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert b"satchel.db.key" in process.stdout.readline()
    shown = git(tmp_path, "status", "--porcelain", "--untracked-files=all")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert (tmp_path / "satchel.db.key").exists()
    left = git(tmp_path, "status", "--porcelain", "--untracked-files=all")
    assert shown == left == "?? .gitignore\n"
    for name in (
        "a.sqlite.key",
        "a.sqlite3-wal",
        ".hypothesis/x",
        ".cache/satchel.db",
        "b.db-demo/ads.db",
        "satchel-memory.key",
    ):
        assert git(tmp_path, "check-ignore", name).strip() == name


def test_the_keys_of_two_databases_lie_in_two_files_that_tell_no_password(tmp_path: Path) -> None:
    urls = (
        "postgresql://ada:secret@db:5432/one",
        "postgresql://ada:secret@db:5432/two",
        "redis://db",
        "mysql://db/one",
    )
    files = {key_file_of(url).name for url in (*urls, "memory:", "sqlite:///one.db")}
    assert len(files) == 6
    assert key_file_of("postgresql://ada:other@db:5432/one") == key_file_of(urls[0])
    git(tmp_path, "init", "--quiet")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    assert set(git(tmp_path, "check-ignore", *files).split()) == files
