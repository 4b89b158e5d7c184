"""The PostgreSQL server of this test process: started when the first test asks for it, stopped when the last has ended."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess

import pytest

from satchel.servers import PostgresServer, ServerMissing

_started: list[PostgresServer] = []
_shells: list[_Shared] = []
_numbers = itertools.count(1)


@functools.cache
def server() -> PostgresServer:
    """Installs Debian's package if it is missing and may be installed. Else the test is skipped, and in CI it fails."""
    made = PostgresServer(settings={"fsync": "off"})  # whoever tests durability has a server of its own
    try:
        made.start()
    except ServerMissing as missing:
        if not _install("postgresql"):
            if os.environ.get("CI") == "true":
                pytest.fail(f"the CI tests all stores: {missing}", pytrace=False)
            pytest.skip(str(missing))
        made.start()
    _started.append(made)
    return made


def _install(package: str) -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    command = ["apt-get", "install", "--yes", "--no-install-recommends", package]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def new_database() -> str:
    """The address of an empty database of one's own."""
    return server().create_database(f"test_{next(_numbers)}")


# DELETE, because TRUNCATE makes forty new files, and a test leaves few rows.
_EMPTY = b"""
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_version' LOOP
        EXECUTE 'DELETE FROM ' || quote_ident(name);
    END LOOP;
END
$$;
\\echo done
"""


class _Shared:
    """A database that many tests use one after another."""

    def __init__(self, name: str) -> None:
        self.url = server().create_database(name)
        self._shell = server().shell(name)
        self._emptied_for: object = None

    def empty(self, once_for: object) -> None:
        if once_for == self._emptied_for:
            return
        if self._emptied_for is not None:
            assert self._shell.stdin is not None
            assert self._shell.stdout is not None
            self._shell.stdin.write(_EMPTY)
            self._shell.stdin.flush()
            said = self._shell.stdout.readline()
            assert said == b"done\n", said
        self._emptied_for = once_for

    def close(self) -> None:
        self._shell.communicate()


@functools.cache
def _shared(name: str) -> _Shared:
    made = _Shared(name)
    _shells.append(made)
    return made


def emptied_database(name: str, *, once_for: object) -> str:
    """The address of a database that is emptied for each new ``once_for`` (a test's folder, say)."""
    shared = _shared(name)
    shared.empty(once_for)
    return shared.url


def stop_all() -> None:
    while _shells:
        _shells.pop().close()
    while _started:
        _started.pop().stop()
