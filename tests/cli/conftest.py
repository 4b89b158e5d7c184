"""The command, called as a shell would call it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from satchel.cli import main
from tests.cli.shell import STORE, TENANT, Answer, Cli, Work, work_on_a_session


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but the store and the tenant, 80 columns, an empty folder."""
    for name in list(os.environ):
        if name.startswith("SATCHEL_") or name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SATCHEL_STORE", STORE)
    monkeypatch.setenv("SATCHEL_TENANT", TENANT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """In this process; a test that needs a process of its own says so."""

    def call(*arguments: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(list(arguments))
        out, err = capsysbinary.readouterr()
        return Answer(code=int(code), out=out, err=err.decode())

    return call


@pytest.fixture
def work(shell: None) -> Work:
    return work_on_a_session()
