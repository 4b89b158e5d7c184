#!/usr/bin/env bash
# databases.sh [full]: the database servers that the tests start for themselves, and what they break them with, from Debian's packages,
# where they are missing and may be installed. Never fails: a test that finds no server says so (and fails in CI).
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive

missing_servers() {
    command -v redis-server >/dev/null || echo redis-server
    command -v mariadbd >/dev/null || command -v mysqld >/dev/null || echo mariadb-server
    command -v postgres >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || echo postgresql
    [ "$1" = full ] || return 0
    command -v pgbouncer >/dev/null || echo pgbouncer
    command -v patroni >/dev/null || printf '%s\n' patroni python3-etcd python3-psycopg2
    command -v etcd >/dev/null || echo etcd-server
    command -v cc >/dev/null || printf '%s\n' gcc libc6-dev
    compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || echo libfaketime
}

install() { apt-get install --yes --no-install-recommends "$@" </dev/null >/dev/null 2>&1; }

kind=${1:-}
[ -n "$(missing_servers "$kind")" ] || exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
mkdir -p .cache
exec 9>.cache/databases.flock
flock 9 # one at a time
mapfile -t packages < <(missing_servers "$kind")
[ "${#packages[@]}" -gt 0 ] || exit 0
echo "==> installing ${packages[*]} for the tests of stores on servers"
install "${packages[@]}" || { apt-get update >/dev/null 2>&1 && install "${packages[@]}"; } ||
    echo "==> could not be installed: what needs them is skipped"
exit 0
