#!/usr/bin/env bash
# Fetches once what the demo's Flask project installs (requirements/demo.lock), so that the demo itself needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
lock=requirements/demo.lock
wheels=.cache/demo-wheels
stamp=$wheels/satchel-stamp

# Some of the wheels are made for one Python and one machine.
wanted() {
    sha256sum "$lock"
    .venv/bin/python -c 'import sys, sysconfig; print(sys.version_info[:2], sysconfig.get_platform())'
}
want=$(wanted)
is_current() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; }

is_current && exit
mkdir -p .cache
if command -v flock >/dev/null; then
    exec 9>.cache/demo-wheels.flock
    flock 9
    ! is_current || exit 0
fi

echo "==> fetching the demo's packages (flask, requests) to $wheels"
rm -rf "$wheels"
.venv/bin/python -m pip download -qq --disable-pip-version-check --require-hashes --only-binary :all: \
    -r "$lock" --dest "$wheels"
echo "$want" >"$stamp"
