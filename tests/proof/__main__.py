"""``python -m tests.proof [PROGRAM…] [--store NAME…] [--weak] [BOUND=N…]``: exits with 1 if a promise did not hold, or if
a weak variant was not found out."""

from __future__ import annotations

import sys

from tests.proof.command import main

if __name__ == "__main__":
    sys.exit(main())
