#!/usr/bin/env bash
# lock.sh UV_VERSION: pins what pyproject.toml and requirements/demo.in ask for. The files name versions and hashes and
# no place to fetch from: that is each machine's own setting.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
tool=.cache/uv-$version

if [ ! -x "$tool/bin/uv" ]; then
    echo "==> installing uv $version into $tool"
    mkdir -p .cache
    tools/new_venv.sh "$tool"
    "$tool/bin/python" -m pip install -qq --disable-pip-version-check "uv==$version"
fi

# uv reads no settings of pip: hand on the one that a proxy needs.
if [ -z "${SSL_CERT_FILE:-}" ] && [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE=$PIP_CERT; fi

compile() {
    "$tool/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" "$@"
}
echo "==> requirements/dev.lock"
compile pyproject.toml --extra cli --extra client --extra server --extra jwt --extra mysql --extra openai --extra otel --extra postgres --extra redis --group dev \
    --output-file requirements/dev.lock
echo "==> requirements/fuzz.lock"
compile --group pyproject.toml:fuzz --output-file requirements/fuzz.lock
echo "==> requirements/demo.lock"
compile requirements/demo.in --output-file requirements/demo.lock
