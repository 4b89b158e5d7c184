"""The scripts, by name, with what they share at their heads."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    text: bytes
    sha: bytes


def _read() -> dict[str, Script]:
    folder = files(__package__).joinpath("lua")
    texts = {entry.name.removesuffix(".lua"): entry.read_text("utf-8") for entry in folder.iterdir()}
    common = texts.pop("common")
    found: dict[str, Script] = {}
    for name, own in texts.items():
        first, _, rest = own.partition("\n")  # the server reads the flags in the first line
        text = f"{first}\n{common}\n{rest}".encode()
        found[name] = Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    return found


SCRIPTS = _read()
BY_SHA = {script.sha: script for script in SCRIPTS.values()}
