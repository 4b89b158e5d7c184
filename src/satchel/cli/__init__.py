"""The command ``satchel``."""

from satchel.cli.entry import main

__all__ = ["main"]
