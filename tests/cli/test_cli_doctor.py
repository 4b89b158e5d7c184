"""`satchel doctor`."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.cli.doctoring import MEANINGS
from satchel.store import Capabilities
from satchel.stores.sqlite import checking
from satchel.stores.sqlite.connection import connect
from tests.cli.shell import Cli, append, make_session
from tests.servers import mysql
from tests.servers.postgres import new_database


def findings(cli: Cli, *, code: int) -> dict[str, Any]:
    """By what each is about."""
    answer = cli("doctor", "--json")
    assert answer.code == code, answer.err or answer.text
    assert answer.json["ok"] is (code == 0)
    return {one["what"].partition("=")[0]: one for one in answer.json["findings"]}


def test_a_sound_file_is_ok_in_all_that_is_looked_at(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()
    monkeypatch.setattr(checking, "kind_of_mount", lambda _: "ext4")  # the tests' folder may be in memory
    found = findings(cli, code=0)
    assert {name for name, one in found.items() if one["level"] == "error"} == set()
    for name in ("schema", "tables", "journal_mode", "synchronous", "secure_delete", "free disk", "permissions"):
        assert found[name]["level"] == "ok", found[name]
        assert found[name]["mend"] is None
    assert {"file system", "sqlite_version"} <= set(found)
    text = cli("doctor").text
    assert "journal_mode=wal" in text
    assert "yes      durable" in text
    assert "0 errors" in text


def test_a_file_without_a_column_that_a_call_needs_is_an_error(cli: Cli) -> None:
    make_session()
    connection = sqlite3.connect("agent.db")
    connection.execute("DROP INDEX sessions_listed")
    connection.execute("ALTER TABLE events DROP COLUMN tokens")
    connection.close()
    found = findings(cli, code=1)["tables"]
    assert (found["level"], found["what"]) == ("error", "tables=without events.tokens, sessions_listed")
    assert "export" in found["mend"]


def test_each_weakness_says_what_it_weakens_and_how_to_mend_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_session()
    Path("agent.db").chmod(0o644)
    tmp_path.chmod(0o777)
    found = findings(cli, code=0)
    for name, mend in (("permissions", "chmod 600 "), ("folder's permissions", "chmod o-w ")):
        assert found[name]["level"] == "warning"
        assert found[name]["mend"].startswith(mend)
        assert "account" in found[name]["why"]
    tmp_path.chmod(0o700)
    monkeypatch.setattr(checking, "kind_of_mount", lambda _: "ext4")  # the tests' folder may be in memory
    text = cli("doctor").text
    assert text.startswith("warning  permissions=644: other accounts")
    assert "mend: chmod 600 " in text
    monkeypatch.setattr(checking, "kind_of_mount", lambda _: "nfs4")
    found = findings(cli, code=1)
    assert found["file system"]["level"] == "error"
    assert "postgresql://" in found["file system"]["mend"]
    monkeypatch.setattr(checking, "kind_of_mount", lambda _: "tmpfs")
    assert findings(cli, code=0)["file system"]["level"] == "warning"


def test_text_that_deletions_left_in_the_file_is_told_until_a_sweep_removed_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make_session("secret")
    append(session_id, "Rosebud")
    monkeypatch.setattr("satchel.sweeper.INLINE_SCRUB", 0)  # as if the file were large
    assert cli("sessions", "delete", session_id, "--yes").code == 0
    left = findings(cli, code=0)["erasures"]
    assert (left["level"], left["what"]) == ("warning", "erasures=1")
    assert cli(*left["mend"].split()[1:]).code == 0
    assert "erasures" not in findings(cli, code=0)


class Usage:
    def __init__(self, free: int) -> None:
        self.free = free


def test_a_disk_that_fills_is_told_in_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(checking.LEAST_FREE + 1))
    assert findings(cli, code=0)["free disk"]["level"] == "warning"
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(checking.LEAST_FREE - 1))
    found = findings(cli, code=1)["free disk"]
    assert (found["level"], "refused" in found["why"]) == ("error", True)


def test_the_settings_that_are_checked_are_those_of_the_connection_that_writes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_session()

    def weak(path: Path, **options: Any) -> Any:
        connection = connect(path, **options)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr("satchel.stores.sqlite.writer.connect", weak)
    found = findings(cli, code=1)
    assert (found["synchronous"]["what"], found["synchronous"]["level"]) == ("synchronous=NORMAL", "error")
    assert found["secure_delete"]["level"] == "warning"


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/srv/data/x", "nfs4"), ("/srv", "ext4"), ("/srv/a b/c", "tmpfs"), ("/srv/database", "ext4"), ("/", "ext4")],
)
def test_the_file_system_of_a_folder_is_that_of_the_deepest_mount_above_it(folder: str, kind: str) -> None:
    mounts = "/dev/sda / ext4 rw 0 0\nbox:/d /srv/data nfs4 rw 0 0\ntmpfs /srv/a\\040b tmpfs rw 0 0\nbad\n"
    assert checking.kind_of_mount(Path(folder), mounts) == kind


def test_a_store_that_is_not_there_is_named_and_not_made(cli: Cli) -> None:
    assert cli("doctor").code == 5
    assert not Path("agent.db").exists()
    answer = cli("doctor", "--store", "postgresql://ada:secret@127.0.0.1:1/d?connect_timeout=1", "--json")
    assert answer.code == 1
    (only,) = answer.json["findings"]
    assert (only["level"], only["what"]) == ("error", "connection=store_unavailable")
    assert "secret" not in answer.text + answer.err
    assert cli("doctor", "--store", "memory:").code == 2


def test_a_server_is_asked_for_its_settings_its_room_and_its_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database()
    monkeypatch.setenv("SATCHEL_STORE", url)
    assert cli("migrate", "up").code == 0
    found = findings(cli, code=1)  # the server for tests does not wait for its disk
    assert found["fsync"] == {
        "level": "error",
        "what": "fsync=off",
        "why": "a power cut may lose or damage everything that was acknowledged",
        "mend": "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();",
    }
    for name in ("synchronous_commit", "full_page_writes", "server_version_num", "clock difference", "schema"):
        assert found[name]["level"] == "ok", found[name]
    monkeypatch.setenv("SATCHEL_STORE", f"{url}?pool_size=999")
    assert findings(cli, code=1)["pool_size+1"]["level"] == "warning"
    real = time.time
    monkeypatch.setattr("satchel.stores.postgres.checking.time.time", lambda: real() - 3600)
    wrong = findings(cli, code=1)["clock difference"]
    assert (wrong["level"], wrong["what"][:22]) in [
        ("warning", f"clock difference=+{seconds}")
        for seconds in (3599, 3600)  # a question takes its time
    ]
    answer = cli("doctor").text
    assert "no       erases_traces: deleted text cannot be read" in answer


def test_a_server_that_a_store_will_not_open_on_is_asked_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    relaxed = mysql.new_database()
    monkeypatch.setenv("SATCHEL_STORE", relaxed)
    assert cli("migrate", "up").code == 0
    for url in (relaxed, relaxed.partition("?")[0]):
        monkeypatch.setenv("SATCHEL_STORE", url)
        found = findings(cli, code=1)  # the server for tests does not wait for its disk
        assert found["innodb_flush_log_at_trx_commit"] == {
            "level": "error",
            "what": "innodb_flush_log_at_trx_commit=0",
            "why": "a power cut loses writes that were acknowledged just before",
            "mend": "SET GLOBAL innodb_flush_log_at_trx_commit = 1;  (and in the server's my.cnf)",
        }
        for name in ("version", "max_allowed_packet", "pool_size", "clock difference", "schema"):
            assert found[name]["level"] == "ok", found[name]
    assert cli("sessions", "list").code == 2


def test_every_promise_says_what_its_no_means() -> None:
    for field in msgspec.structs.fields(Capabilities):
        if field.name in ("name", "parallel_batches"):
            continue
        if field.type is bool:
            assert MEANINGS[field.name, False]
        else:
            assert any(name == field.name for name, _ in MEANINGS), field.name
