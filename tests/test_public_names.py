"""``import satchel``: every public name is there when it is asked for, and nothing is loaded before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import satchel


def test_every_public_name_is_found_and_listed() -> None:
    listed = dir(satchel)
    for name in satchel.__all__:
        assert getattr(satchel, name) is not None
        assert name in listed


def test_an_unknown_name_is_an_attribute_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'satchel' has no attribute 'SesionManager'"):
        satchel.SesionManager  # noqa: B018  # the access is what is tested


def test_import_alone_loads_neither_an_event_loop_nor_a_store() -> None:
    """A command that only prints its help, or an error class in an `except`, does not wait for them."""
    loaded = "import sys, satchel; print([name for name in ('asyncio', 'sqlite3', 'ssl') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True).strip() == "[]"
