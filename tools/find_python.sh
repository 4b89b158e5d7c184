#!/usr/bin/env bash
# Prints the interpreter to use: $PYTHON if set, else the first python on the PATH that is 3.11 or later.
set -euo pipefail

is_good() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    is_good "$PYTHON" || { echo "PYTHON=$PYTHON does not run, or is older than Python 3.11." >&2; exit 1; }
    command -v "$PYTHON"
    exit
fi
for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
    if is_good "$candidate"; then
        command -v "$candidate"
        exit
    fi
done
echo "No Python 3.11 or later on the PATH. Install one (Debian: apt-get install python3), or say PYTHON=/path/to/python3." >&2
exit 1
