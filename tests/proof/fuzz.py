"""One target under atheris, which looks for bytes that take new ways through the code.

python -m tests.proof.fuzz TARGET [options of libFuzzer] [folder of a corpus]
"""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    atheris = importlib.import_module("atheris")  # it may not be here, and has no types
    with atheris.instrument_imports(include=["satchel"], enable_loader_override=False):
        from tests.proof.hostile_targets import asked
    atheris.Setup([sys.argv[0], *sys.argv[2:]], asked(sys.argv[1]))
    atheris.Fuzz()
