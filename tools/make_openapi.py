"""Writes docs/openapi.json: what the HTTP service says of itself."""

import sys
from pathlib import Path

from satchel.http.openapi import document_bytes

TARGET = Path(__file__).parent.parent / "docs" / "openapi.json"


def main() -> int:
    TARGET.write_bytes(document_bytes())
    print(f"{TARGET.relative_to(TARGET.parent.parent)}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
