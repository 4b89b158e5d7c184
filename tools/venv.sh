#!/usr/bin/env bash
# Makes .venv from requirements/dev.lock and puts the checkout into it, unless it is there and nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
lock=requirements/dev.lock
stamp=.venv/satchel-stamp
checkout_stamp=.venv/satchel-checkout-stamp

# An environment remembers its folder in every script, so a moved or copied checkout needs a new one.
wanted() {
    pwd -P
    sha256sum "$lock"
    if [ -n "${PYTHON:-}" ]; then "$PYTHON" -c 'import sys; print(sys.version)'; fi
}
# Without PYTHON any interpreter that once made .venv will do: only the first lines count then.
is_current() {
    [ -x .venv/bin/python ] && [ -f "$stamp" ] || return 1
    local want
    want=$(wanted) || return 1
    [ "$(head -n "$(wc -l <<<"$want")" "$stamp")" = "$want" ]
}
# A copy that somebody installed over the checkout would be tested in its place.
has_copy() { compgen -G '.venv/lib/python3*/site-packages/satchel' >/dev/null; }
has_checkout() { [ -f "$checkout_stamp" ] && ! has_copy && sha256sum --check --status "$checkout_stamp"; }

if is_current && has_checkout; then exit; fi
mkdir -p .cache
if command -v flock >/dev/null; then # two makes at once: the second waits, and finds the work done
    exec 9>.cache/venv.flock
    flock 9
    if is_current && has_checkout; then exit; fi
fi

started=$SECONDS
if ! is_current; then
    echo "==> making .venv from $lock"
    tools/new_venv.sh .venv
    .venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: -r "$lock"
    {
        PYTHON='' wanted
        .venv/bin/python -c 'import sys; print(sys.version)'
    } >"$stamp"
fi
echo "==> putting this checkout into .venv"
.venv/bin/python -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps --editable .
sha256sum pyproject.toml >"$checkout_stamp"
echo "==> .venv is ready: $(.venv/bin/python --version), $((SECONDS - started)) s"
