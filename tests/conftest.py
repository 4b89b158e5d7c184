"""Shared by all tests."""

import sys

import pytest

# The conformance suites live in the package and assert as tests do: rewritten, their failures show the values.
pytest.register_assert_rewrite("satchel.testing")


def pytest_sessionfinish() -> None:
    for name in ("postgres", "mysql", "redis"):
        servers = sys.modules.get(f"tests.servers.{name}")
        if servers is not None:
            servers.stop_all()
