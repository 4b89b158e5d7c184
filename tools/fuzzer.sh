#!/usr/bin/env bash
# Puts atheris (requirements/fuzz.lock) into .venv, for `make test-full` and `make proof`. Never fails: without it `hostile` says
# so, and is skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
lock=requirements/fuzz.lock
stamp=.venv/satchel-fuzzer-stamp

if sha256sum --check --status "$stamp" 2>/dev/null; then exit; fi
echo "==> putting atheris into .venv, for the program that tries hostile bytes"
if .venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: -r "$lock"; then
    sha256sum "$lock" >"$stamp"
else
    echo "==> could not be installed: \`hostile\` is skipped"
fi
exit 0
