"""Shared by all tests."""

import pytest

# The conformance suites live in the package and assert as tests do: rewritten, their failures show the values.
pytest.register_assert_rewrite("satchel.testing")
