"""Shared by all tests."""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path

import pytest

from tests import memory_disk

# The conformance suites live in the package and assert as tests do: rewritten, their failures show the values.
pytest.register_assert_rewrite("satchel.testing")

_in_memory: list[Path] = []

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has Ctrl-C ignored, and so would each program that they press it on.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a process of `-n`: it has the folder of the one that started it
    folder = memory_disk.use_memory()
    if folder is not None:
        _in_memory.append(folder)


def pytest_collection_finish() -> None:
    """Ten thousand tests stay to the end: without them each look for garbage takes a fraction of the time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        _in_memory.clear()  # what failed may be looked at, until the next run
    for name in ("postgres", "mysql", "redis"):
        servers = sys.modules.get(f"tests.servers.{name}")
        if servers is not None:
            servers.stop_all()


def pytest_unconfigure() -> None:
    for folder in _in_memory:
        memory_disk.leave(folder)
