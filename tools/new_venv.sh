#!/usr/bin/env bash
# new_venv.sh FOLDER: makes an empty virtual environment; on a Debian without venv it installs that first, if it may.
set -euo pipefail
folder=$1
python=$("$(dirname "$0")/find_python.sh")

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

if ! has_venv; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    package=python$version-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "==> $python has no venv: installing $package"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -qq -y "$package" >/dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y "$package" >/dev/null 2>&1; } || true
    fi
    if ! has_venv; then
        echo "$python cannot make virtual environments. Install them (Debian, Ubuntu: apt-get install $package)," >&2
        echo "or say PYTHON=/path/to/python3 to use another interpreter." >&2
        exit 1
    fi
fi
rm -rf "$folder"
"$python" -m venv "$folder"
