"""`satchel sessions import` and `export`."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel import Page, Session, SessionManager
from tests.cli.shell import UNSAFE, Cli, Terminal, Work, append, command, conversation, make_session

SAMPLE = Path(__file__).parent.parent / "data" / "sample.jsonl"
REAL = Path(os.environ.get("SATCHEL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))

ADA = ("--user", "ada")


class Line(msgspec.Struct):
    """What a conversation is, as bytes."""

    session_id: str
    messages: list[msgspec.Raw]
    source: msgspec.Raw
    licence: msgspec.Raw
    meta: msgspec.Raw


def conversations(data: bytes) -> dict[str, tuple[bytes, ...]]:
    decode = msgspec.json.Decoder(Line).decode
    found = {}
    for text in data.splitlines():
        line = decode(text)
        found[line.session_id] = tuple(bytes(part) for part in (line.source, line.licence, line.meta, *line.messages))
    return found


# -- there and back


def test_what_was_imported_is_exported_byte_for_byte(cli: Cli) -> None:
    answer = cli("sessions", "import", str(SAMPLE), *ADA)
    assert answer.code == 0, answer.err
    exported = cli("sessions", "export", *ADA)
    assert conversations(exported.out) == conversations(SAMPLE.read_bytes())


@pytest.mark.slow
@pytest.mark.skipif(
    not REAL.is_dir(), reason="the real conversations are not on this machine; SATCHEL_TEST_DATA names them"
)
def test_real_conversations_are_exported_byte_for_byte(cli: Cli) -> None:
    files = sorted(REAL.glob("*.jsonl.gz"))
    assert files
    answer = cli("sessions", "import", *map(str, files), *ADA)
    assert answer.code == 0, answer.err
    assert cli("sessions", "export", "-o", "all.jsonl.gz", *ADA).code == 0
    before = {
        name: parts for file in files for name, parts in conversations(gzip.decompress(file.read_bytes())).items()
    }
    assert conversations(gzip.decompress(Path("all.jsonl.gz").read_bytes())) == before


def test_everything_a_session_holds_comes_over_to_another_store(
    cli: Cli, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli("sessions", "export", *ADA).out
    monkeypatch.setenv("SATCHEL_STORE", "sqlite:///other.db")
    assert cli("sessions", "import", "-", *ADA, stdin=first).code == 0
    second = cli("sessions", "export", *ADA).out
    (before,), (after,) = first.splitlines(), second.splitlines()
    there = msgspec.json.decode(after)
    assert there["messages"] == msgspec.json.decode(before)["messages"]
    for part in ("title", "status", "version", "metadata", "events", "created_at", "updated_at"):
        assert there["satchel"][part] == msgspec.json.decode(before)["satchel"][part], part
    moved = cli("sessions", "list", "--json").json["items"][0]["session_id"]
    text = cli("sessions", "show", moved).text
    assert "添加 requests" in text
    assert work.run_id in text


def test_gzip_goes_by_the_file_name_in_both_directions(cli: Cli) -> None:
    Path("in.jsonl.gz").write_bytes(gzip.compress(conversation("a", "一") + conversation("b", "二")))
    assert cli("sessions", "import", "in.jsonl.gz", *ADA).code == 0
    assert cli("sessions", "export", "-o", "out.jsonl.gz").code == 0
    assert cli("sessions", "export", "-o", "out.jsonl").code == 0
    assert cli("sessions", "export", "-o", "again.jsonl.gz").code == 0
    plain = Path("out.jsonl").read_bytes()
    assert plain == cli("sessions", "export", "-o", "-").out
    assert gzip.decompress(Path("out.jsonl.gz").read_bytes()) == plain
    assert Path("again.jsonl.gz").read_bytes() == Path("out.jsonl.gz").read_bytes()


def test_export_takes_the_sessions_that_are_named_or_one_users_or_all(cli: Cli) -> None:
    first, second, bobs = make_session("1"), make_session("2"), make_session("3", user="bob")

    def ids(*arguments: str) -> list[str]:
        return [line["session_id"] for line in cli("sessions", "export", *arguments).lines]

    assert ids(first) == [first]
    assert ids(second, first, second) == [second, first]
    assert sorted(ids(*ADA)) == sorted([first, second])
    assert sorted(ids()) == sorted([first, second, bobs])
    assert cli("sessions", "export", bobs, *ADA).code == 3


def test_an_export_of_nothing_says_so_beside_the_data(cli: Cli) -> None:
    make_session()
    answer = cli("sessions", "export", "--user", "nobody")
    assert (answer.code, answer.out) == (0, b"")
    assert "no sessions of user nobody in tenant acme" in answer.err
    assert "no sessions of tenant umbrella" in cli("sessions", "export", "--tenant", "umbrella").err
    assert cli("sessions", "export", "--user", "nobody", "--json").err == ""
    assert "0 sessions written to none.jsonl" in cli("sessions", "export", "--user", "nobody", "-o", "none.jsonl").err


def test_export_leaves_out_what_is_deleted_while_it_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, gone = make_session("kept"), make_session("gone")
    append(gone, "one", "two")
    export = SessionManager.export_sessions

    async def deleting(self: SessionManager, session_ids: list[str]) -> AsyncIterator[bytes]:
        if session_ids == [gone]:  # it was listed; what reads it finds a tombstone
            await self.delete_session(gone)
        async for piece in export(self, session_ids):
            yield piece

    monkeypatch.setattr(SessionManager, "export_sessions", deleting)
    answer = cli("sessions", "export")
    assert answer.code == 0, answer.err
    assert [line["session_id"] for line in answer.lines] == [kept]


def test_export_misses_no_session_that_changes_while_the_list_is_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, middle, newest = (make_session(title) for title in ("1", "2", "3"))
    list_sessions = SessionManager.list_sessions

    async def changing(self: SessionManager, **filters: Any) -> Page[Session]:
        page = await list_sessions(self, **filters)
        if filters["cursor"] is None and filters["updated_after"] is None:
            await self.rename_session(oldest, "now the newest")  # moves into the part that was read already
        return page

    monkeypatch.setattr("satchel.cli.exporting.PAGE", 1)
    monkeypatch.setattr(SessionManager, "list_sessions", changing)
    exported = [line["session_id"] for line in cli("sessions", "export").lines]
    assert sorted(exported) == sorted([oldest, middle, newest])


def test_export_misses_no_session_that_changes_again_and_again_while_the_list_is_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [make_session(str(number)) for number in range(6)]
    list_sessions = SessionManager.list_sessions
    looks = 0

    async def changing(self: SessionManager, **filters: Any) -> Page[Session]:
        nonlocal looks
        page = await list_sessions(self, **filters)
        looks += 1
        if looks <= 10:  # one is always ahead of who reads
            for session_id in ids if looks <= 2 else ids[:1]:
                await self.rename_session(session_id, f"after look {looks}")
        return page

    monkeypatch.setattr("satchel.cli.exporting.PAGE", 2)
    monkeypatch.setattr(SessionManager, "list_sessions", changing)
    exported = [line["satchel"]["session_id"] for line in cli("sessions", "export").lines]
    assert sorted(exported) == sorted(ids)


def test_what_a_killed_export_left_is_in_nobodys_way(cli: Cli) -> None:
    """In a container every one has the same process id."""
    make_session("one")
    Path(f".all.jsonl.{os.getpid()}.part").write_bytes(b"half")
    assert cli("sessions", "export", "-o", "all.jsonl").code == 0
    assert len(Path("all.jsonl").read_bytes().splitlines()) == 1


# -- import reports


def summary(**counts: Any) -> dict[str, Any]:
    return {"imported": 0, "exists": 0, "differs": 0, "messages": 0, "former_owners": {}} | counts


def test_import_reports_each_conversation_and_the_sum(cli: Cli) -> None:
    Path("two.jsonl").write_bytes(conversation("聊天-一", "a", "b") + b"\n" + conversation("c-2", "c"))
    first = cli("sessions", "import", "two.jsonl", *ADA)
    assert [line.split()[0] for line in first.text.splitlines()[:2]] == ["imported", "imported"]
    assert "聊天-一" in first.text
    assert "2 conversations imported (3 messages)" in first.text
    second = cli("sessions", "import", "two.jsonl", *ADA, "--json")
    assert second.lines[-1] == {"summary": summary(exists=2)}
    (report, other, _) = second.lines
    assert (report["file"], report["line"], report["external_id"], report["result"]) == (
        "two.jsonl",
        1,
        "聊天-一",
        "exists",
    )
    assert other["line"] == 3
    assert cli("sessions", "show", report["session_id"], "--json").json["external_id"] == "聊天-一"


def test_import_goes_on_where_it_stopped(cli: Cli) -> None:
    lines = [conversation(f"c-{number}", "hello") for number in range(6)]
    Path("some.jsonl").write_bytes(b"".join(lines[:4]))
    Path("all.jsonl").write_bytes(b"".join(lines))
    cli("sessions", "import", "some.jsonl", *ADA)
    answer = cli("sessions", "import", "all.jsonl", *ADA, "--json")
    assert answer.lines[-1]["summary"] == summary(imported=2, exists=4, messages=2)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"session_id": "x", "messages": [', "invalid_input"),
        (b"[1, 2]", "invalid_input"),
        (b'{"messages": []}', "invalid_input"),
        (b'{"session_id": "x", "messages": [{"role": "nobody"}]}', "invalid_input"),
        (b'{"session_id": "' + b"x" * 200 + b'", "messages": []}', "limit_exceeded"),
        (b'{"session_id": "\xff", "messages": []}', "invalid_input"),
    ],
)
def test_a_bad_line_is_named_after_what_was_imported_before_it(cli: Cli, line: bytes, code: str) -> None:
    Path("ok.jsonl").write_bytes(conversation("a", "1"))
    Path("bad.jsonl").write_bytes(conversation("b", "2") + line + b"\n" + conversation("c", "3"))
    answer = cli("sessions", "import", "ok.jsonl", "bad.jsonl", *ADA, "--json")
    assert answer.code == 2
    assert answer.error["code"] == code
    assert answer.error["message"].startswith("bad.jsonl, line 2: ")
    assert "line 2" not in answer.error["message"][len("bad.jsonl, line 2: ") :]
    assert answer.lines[-1] == {"summary": summary(imported=2, messages=2)}
    names = [item["external_id"] for item in cli("sessions", "list", "--json").json["items"]]
    assert sorted(names) == ["a", "b"]


def test_a_file_that_cannot_be_read_is_named_before_anything_is_stored(cli: Cli, tmp_path: Path) -> None:
    Path("ok.jsonl").write_bytes(conversation("a", "1"))
    for wrong in ("missing.jsonl", str(tmp_path)):
        answer = cli("sessions", "import", "ok.jsonl", wrong, *ADA, "--json")
        assert (answer.code, answer.error["code"]) == (2, "file_unusable")
        assert wrong in answer.error["message"]
    assert not Path("agent.db").exists()


def test_a_damaged_gzip_file_is_named_with_the_line(cli: Cli) -> None:
    whole = gzip.compress(b"".join(conversation(f"c-{number}", os.urandom(2000).hex()) for number in range(20)))
    Path("cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    Path("none.jsonl.gz").write_bytes(b"plain text")
    answer = cli("sessions", "import", "cut.jsonl.gz", *ADA)
    assert answer.code == 2
    assert "cut.jsonl.gz, line " in answer.err
    assert "conversations imported" in answer.text
    answer = cli("sessions", "import", "none.jsonl.gz", *ADA)
    assert (answer.code, "none.jsonl.gz, line 1" in answer.err) == (2, True)


def test_a_line_without_an_owner_needs_a_user(cli: Cli) -> None:
    Path("ok.jsonl").write_bytes(conversation("a", "1"))
    answer = cli("sessions", "import", "ok.jsonl", "--json")
    assert (answer.code, answer.error["code"]) == (2, "invalid_input")
    assert "ok.jsonl, line 1: " in answer.error["message"]
    assert "--user" in answer.error["message"]
    assert cli("sessions", "list", "--json").json["items"] == []


def test_import_takes_no_flag_for_a_file(cli: Cli) -> None:
    Path("ok.jsonl").write_bytes(conversation("a", "1"))
    answer = cli("sessions", "import", "ok.jsonl", *ADA, "--quick")
    assert (answer.code, "--quick" in answer.err) == (2, True)
    assert cli("sessions", "import", *ADA).code == 2
    assert not Path("agent.db").exists()


def test_a_conversation_of_the_same_name_is_another_one_for_another_user(cli: Cli) -> None:
    Path("a.jsonl").write_bytes(conversation("a", "1"))
    ada = cli("sessions", "import", "a.jsonl", "--user", "ada", "--json").lines[0]
    bob = cli("sessions", "import", "a.jsonl", "--user", "bob", "--json").lines[0]
    assert (ada["result"], bob["result"]) == ("imported", "imported")
    assert ada["session_id"] != bob["session_id"]


# -- a backup of several users


def two_users(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A whole tenant, exported; what comes is on another store."""
    for user in ("ada", "bob"):
        answer = cli("sessions", "import", "-", "--user", user, stdin=conversation("main", f"of {user}"))
        assert answer.code == 0, answer.err
    backup = cli("sessions", "export").out
    monkeypatch.setenv("SATCHEL_STORE", "sqlite:///other.db")
    return backup


def owners(cli: Cli) -> dict[str, str]:
    lines = cli("sessions", "export").lines
    return {line["satchel"]["user_id"]: line["messages"][0]["content"] for line in lines}


def test_a_backup_of_a_tenant_comes_back_to_its_owners(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = two_users(cli, monkeypatch)
    answer = cli("sessions", "import", "-", "--json", stdin=backup)
    assert answer.code == 0, answer.err
    assert answer.lines[-1]["summary"] == summary(imported=2, messages=2)
    assert owners(cli) == {"ada": "of ada", "bob": "of bob"}
    again = cli("sessions", "import", "-", "--json", stdin=backup)
    assert (again.code, again.lines[-1]["summary"]) == (0, summary(exists=2))


def test_what_has_another_sessions_name_is_left_and_named_and_whose_the_others_were_is_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = two_users(cli, monkeypatch)
    reports = cli("sessions", "import", "-", *ADA, "--json", stdin=backup)
    assert (reports.code, reports.error["code"]) == (4, "import_differs")
    first, second, last = reports.lines
    kept = first["former_user_id"] or "ada"
    assert owners(cli) == {"ada": f"of {kept}"}
    assert (first["result"], second["result"], second["session_id"]) == ("imported", "differs", first["session_id"])
    assert (second["external_id"], bool(second["reason"])) == ("main", True)
    assert last["summary"] == summary(
        imported=1, differs=1, messages=1, former_owners={} if kept == "ada" else {kept: 1}
    )
    answer = cli("sessions", "import", "-", "--user", "eva", stdin=backup)
    assert answer.code == 4
    assert "another session of" in answer.text
    assert "it was left" in answer.text
    assert f"imported for eva; the file says whose they were: 1 session of {kept} (" in answer.text


def test_an_import_for_somebody_else_takes_nothing_from_its_owner_and_says_so_once(cli: Cli) -> None:
    assert cli("sessions", "import", "-", *ADA, stdin=conversation("a", "1")).code == 0
    backup = cli("sessions", "export").out
    answer = cli("sessions", "import", "-", "--user", "eva", stdin=backup)
    assert "imported for eva; the file says whose they were: 1 session of ada (" in answer.text
    assert sorted(one["user_id"] for one in cli("sessions", "list", "--json").json["items"]) == ["ada", "eva"]
    again = cli("sessions", "import", "-", "--user", "eva", stdin=backup)
    assert "0 conversations imported" in again.text
    assert "ada" not in again.text
    again = cli("sessions", "import", "-", "--user", "eva", "--json", stdin=backup)
    assert again.lines[-1]["summary"] == summary(exists=1)


def test_a_line_that_goes_on_behind_the_session_there_is_not_called_there(cli: Cli) -> None:
    assert cli("sessions", "import", "-", *ADA, stdin=conversation("a", "1")).code == 0
    answer = cli("sessions", "import", "-", *ADA, "--json", stdin=conversation("a", "1", "2"))
    assert (answer.code, answer.lines[0]["result"]) == (4, "differs")
    assert "ends at seq 1" in answer.lines[0]["reason"]
    assert [len(line["messages"]) for line in cli("sessions", "export").lines] == [1]


def test_what_went_on_behind_its_import_is_there_already(cli: Cli) -> None:
    line = conversation("a", "1")
    report = cli("sessions", "import", "-", *ADA, "--json", stdin=line).lines[0]
    append(report["session_id"], "since")
    answer = cli("sessions", "import", "-", *ADA, "--json", stdin=line)
    assert (answer.code, answer.lines[0]["result"], answer.lines[0]["messages"]) == (0, "exists", 2)


# -- files


def test_an_export_that_fails_leaves_the_old_file_and_no_other(cli: Cli) -> None:
    session_id = make_session()
    target = Path("keep.jsonl")
    target.write_text("old")
    target.chmod(0o640)
    assert cli("sessions", "export", "sess_unknown", "-o", "keep.jsonl").code == 3
    assert target.read_text() == "old"
    assert not list(Path().glob(".keep*"))
    assert cli("sessions", "export", session_id, "-o", "keep.jsonl", "--json").json == {
        "exported": 1,
        "output": "keep.jsonl",
    }
    assert target.stat().st_mode & 0o777 == 0o640
    assert session_id in target.read_text()


def test_an_export_is_for_its_owners_eyes(cli: Cli) -> None:
    make_session()
    cli("sessions", "export", "-o", "mine.jsonl")
    assert Path("mine.jsonl").stat().st_mode & 0o077 == 0


def test_an_export_into_no_folder_names_it(cli: Cli) -> None:
    make_session()
    answer = cli("sessions", "export", "-o", "nowhere/out.jsonl", "--json")
    assert (answer.code, answer.error["code"]) == (2, "file_unusable")
    assert "nowhere/out.jsonl" in answer.error["message"]


# -- terminals and processes


def test_progress_is_shown_on_a_terminal_and_data_goes_elsewhere(cli: Cli) -> None:
    Path("in.jsonl").write_bytes(b"".join(conversation(f"c-{number}", "hello" * 100) for number in range(40)))
    out = Path("reports.txt")
    terminal = Terminal(["sessions", "import", "in.jsonl", *ADA], stdout=out)
    assert terminal.end() == 0
    assert "importing" in terminal.shown
    lines = out.read_text().splitlines()
    assert len(lines) == 41
    assert "\x1b" not in out.read_text()


def test_an_export_to_a_terminal_is_the_same_json_and_moves_no_cursor(cli: Cli) -> None:
    Path("in.jsonl").write_bytes(conversation("a", UNSAFE))
    cli("sessions", "import", "in.jsonl", *ADA)
    terminal = Terminal(["sessions", "export"], NO_COLOR="1")
    assert terminal.end() == 0
    shown = [line for line in terminal.shown.splitlines() if line.startswith('{"source"')]
    assert msgspec.json.decode(shown[0])["messages"][0]["content"] == UNSAFE
    assert not {"\x07", "\x9b", "\u202e"} & set(shown[0])
    assert UNSAFE in msgspec.json.decode(cli("sessions", "export").out)["messages"][0]["content"]


def test_ctrl_c_ends_an_import_that_waits_for_its_input(shell: None) -> None:
    arguments = command("sessions", "import", "-", *ADA)
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(conversation("a", "1"))
            process.stdin.flush()  # and it stays open: nothing more comes
            assert process.stdout.readline().startswith(b"imported")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 130
            assert b"1 conversation imported" in process.stdout.read()
        finally:
            process.kill()
