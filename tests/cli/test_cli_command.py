"""The command as a whole: help, variables, errors, exit codes, terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import satchel
from satchel import (
    IdempotencyMismatch,
    InvalidCursor,
    NotAllowed,
    OutcomeUnknown,
    RunNotFound,
    SatchelError,
    SessionClosed,
    SessionManager,
    StoreBusy,
    StoreCorrupt,
    Unauthenticated,
)
from satchel.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from satchel.cli.visible import lines_kept, one_line, safe_json
from satchel.errors import EXTRAS
from tests.cli.shell import UNSAFE, Cli, Terminal, append, command, conversation, make_session

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ["demo"],
    ["tail"],
    ["worker"],
    ["sessions"],
    ["runs"],
    *(["runs", verb] for verb in ("list", "show", "answer", "cancel")),
    *(["sessions", verb] for verb in ("list", "show", "close", "restore", "delete", "import", "export")),
]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    return subprocess.run(command(*arguments), timeout=30, check=False, **{"capture_output": True} | options)


# -- help


def test_help_names_every_command_and_every_exit_code(cli: Cli) -> None:
    answer = cli("--help")
    assert answer.code == 0
    for word in ("demo", "sessions", "tail", "SATCHEL_STORE"):
        assert word in answer.text
    for code, meaning in MEANINGS.items():
        assert f"{code.value:>3}  {meaning}" in answer.text  # unbroken: each fits into 80 columns
    assert set(MEANINGS) == set(ExitCode)
    assert cli().text == answer.text


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_that_fits(cli: Cli, arguments: list[str]) -> None:
    answer = cli(*arguments, "--help")
    assert answer.code == 0
    assert answer.text.startswith(f"Usage: satchel {' '.join(arguments)} ")
    assert max(map(len, answer.text.splitlines())) <= 80


def test_version(cli: Cli) -> None:
    assert cli("--version").text == f"{version('satchel')}\n"


def test_the_module_and_the_script_are_the_same_command(shell: None) -> None:
    script = Path(sys.executable).with_name("satchel")
    asked = subprocess.run([script, "--version"], capture_output=True, check=True, timeout=30)
    assert asked.stdout == run("--version").stdout != b""


@pytest.mark.parametrize("missing", ["rich", "cyclopts"])
def test_without_the_extra_it_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "satchel.cli.running", raising=False)
    answer = cli("--help")
    assert answer.code == 1
    assert "pip install cyclopts jsonschema-rs rich (the extra 'cli' of satchel)" in answer.err


# -- flags and their variables


def test_a_flag_is_stronger_than_its_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob = make_session(), make_session(user="bob")
    monkeypatch.setenv("SATCHEL_USER", "ada")
    monkeypatch.setenv("SATCHEL_JSON", "1")
    assert [item["session_id"] for item in cli("sessions", "list").json["items"]] == [ada]
    assert [item["session_id"] for item in cli("sessions", "list", "--user", "bob").json["items"]] == [bob]


def test_a_variable_of_a_repeated_flag_holds_one_value_a_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    both = make_session(metadata={"topic": "two words", "n": 1})
    make_session(metadata={"topic": "two words", "n": 2})
    monkeypatch.setenv("SATCHEL_METADATA", "topic=two words\nn=1\n")
    assert [item["session_id"] for item in cli("sessions", "list", "--json").json["items"]] == [both]


def test_an_empty_variable_never_widens_what_is_seen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()
    monkeypatch.setenv("SATCHEL_USER", "")
    answer = cli("sessions", "list")
    assert (answer.code, answer.out) == (2, b"")
    assert "--user is empty" in answer.err
    monkeypatch.delenv("SATCHEL_USER")
    monkeypatch.setenv("SATCHEL_TENANT", "")
    assert cli("sessions", "list").code == 2
    monkeypatch.setenv("SATCHEL_JSON", "")  # yes or no: empty is neither
    assert cli("sessions", "list", "--tenant", "acme").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["sesions"],
        ["sessions", "lst"],
        ["sessions", "list", "--limt", "3"],
        ["sessions", "list", "--limit", "many"],
        ["sessions", "list", "--limit", "0"],
        ["sessions", "list", "--status", "open"],
        ["sessions", "list", "--metadata", "novalue"],
        ["sessions", "list", "--updated-after", "yesterday"],
        ["sessions", "list", "--all", "--cursor", "x"],
        ["sessions", "list", "--store", "ftp://x"],
        ["sessions", "show"],
        ["sessions", "show", "a", "b"],
        ["sessions", "show", "a", "--messages", "-1"],
        ["sessions", "close", "a", "--expected-version", "new"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_sentence_and_code_2(cli: Cli, arguments: list[str]) -> None:
    make_session()
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, b"")
    assert answer.err.startswith("satchel: ")
    assert answer.err.count("\n") == 1
    as_json = cli(*arguments, "--json")
    assert as_json.code == 2
    assert as_json.error.keys() == {"code", "message"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sessions", "list"], "--tenant (or SATCHEL_TENANT) is required"),
        (["sessions", "list", "--tenant"], "--tenant needs a value"),
        (["sessions", "list", "--bogus"], "there is no flag --bogus"),
        (["sessions", "list", "--bogus=3"], "there is no flag --bogus"),
        (["sessions", "list", "--tenat", "x"], "there is no flag --tenat; did you mean --tenant?"),
        (["sessions", "list", "extra"], "there is one argument too many: 'extra'"),
        (["keys", "revoke"], "KEY_ID is required"),
        (["keys", "create", "--tenant", "x"], "--role (or SATCHEL_ROLE) is required"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_told_what_is_wrong(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    if arguments[-1] != "extra" and "--bogus" not in arguments[-1]:
        monkeypatch.delenv("SATCHEL_TENANT")
    answer = cli(*arguments)
    chain = " ".join(["satchel", *arguments[:2]])
    assert (answer.code, answer.err) == (2, f"satchel: {sentence} ({chain} --help)\n")


# -- stores


def test_a_store_that_is_made_is_told_of(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_bytes(conversation("talk-1", "你好"))
    told = f"satchel: made a new store at {tmp_path / 'new.db'}\n"
    for arguments in (
        ["keys", "create", "--role", "admin", "--user", "root"],
        ["sessions", "import", "one.jsonl", "--user", "ada"],
    ):
        assert told in cli(*arguments, "--store", "sqlite:///new.db").err
        assert told not in cli(*arguments, "--store", "sqlite:///new.db").err
        Path("new.db").unlink()


@pytest.mark.parametrize(
    "arguments", [["worker", "--agent", "one_agent:talk"], ["serve", "--agent", "one_agent:talk", "--port", "0"]]
)
def test_a_server_and_a_worker_tell_of_the_store_that_they_make(shell: None, arguments: list[str]) -> None:
    Path("one_agent.py").write_text("async def talk(ctx): ...\n")
    process = subprocess.Popen(
        command(*arguments, "--store", "sqlite:///typo.db"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert process.stdout is not None
    lines = [process.stderr.readline().decode(), process.stderr.readline().decode()]
    pasted = process.stdout.readline().decode() if arguments[0] == "serve" else ""
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0
    told = f"made a new store at {Path('typo.db').absolute()}"
    assert any(line == f"satchel: {told}\n" or f'"message":"{told}' in line for line in lines)  # `serve` logs JSON
    if pasted:
        assert f"$(cat {Path('typo.db.key').absolute()})" in pasted


@pytest.mark.parametrize(
    ("store", "driver", "needs"),
    [
        ("postgres", "asyncpg", "postgresql:// needs asyncpg, which is not installed: pip install asyncpg"),
        ("mysql", "asyncmy", "mysql:// needs packages that are not installed: pip install asyncmy cryptography"),
        ("redis", "redis", "redis:// needs redis, which is not installed: pip install 'redis[hiredis]'"),
    ],
)
def test_a_store_whose_driver_is_not_installed_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, store: str, driver: str, needs: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    for name in [name for name in sys.modules if name.startswith(f"satchel.stores.{store}")]:
        monkeypatch.delitem(sys.modules, name)
    scheme = needs.partition("://")[0]
    answer = cli("sessions", "list", "--store", f"{scheme}://localhost/none")
    assert answer.code == 2
    assert answer.err == f"satchel: a store at {needs} (the extra '{store}' of satchel)\n"
    answer = cli("sessions", "list", "--store", f"{scheme}://localhost/none", "--json")
    assert (answer.code, answer.error["code"]) == (2, "extra_missing")


@pytest.mark.parametrize("command", ["worker", "serve", "chat"])
def test_an_agents_module_is_looked_for_in_this_folder_and_that_is_said(cli: Cli, command: str) -> None:
    answer = cli(command, "--store", "sqlite:///agent.db", "--agent", "agentz:shop")
    assert (answer.code, "there is no module 'agentz' in " in answer.err) == (2, True)
    assert str(Path.cwd()) in answer.err


def test_a_service_without_its_packages_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.cli.serving.find_spec", lambda name: None if name == "prometheus_client" else name)
    answer = cli("serve", "--store", "sqlite:///agent.db")
    assert answer.code == 2
    packages = "httptools jsonschema-rs litestar prometheus-client uvicorn"
    assert f"the server needs packages that are not installed: pip install {packages} " in answer.err
    assert not Path("agent.db").exists()


def test_what_is_to_be_installed_is_what_the_extras_hold() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = document["project"]["optional-dependencies"]
    assert {name: tuple(one.partition(">")[0] for one in held[name]) for name in held} == EXTRAS


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["show", "s"],
        ["close", "s"],
        ["restore", "s"],
        ["delete", "s", "--yes"],
        ["export"],
        ["export", "-o", "f"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_missing_is_not_made_by_looking(cli: Cli, arguments: list[str], tmp_path: Path) -> None:
    answer = cli("sessions", *arguments, "--json")
    assert (answer.code, answer.error["code"]) == (5, "store_missing")
    assert list(tmp_path.iterdir()) == []


def test_a_memory_store_is_refused(cli: Cli) -> None:
    answer = cli("sessions", "list", "--store", "memory:", "--json")
    assert (answer.code, answer.error["code"]) == (2, "store_not_shared")


def test_a_file_that_is_no_store_is_named_as_damaged(cli: Cli) -> None:
    Path("agent.db").write_bytes(b"this is no database, and never was one" * 100)
    answer = cli("sessions", "list", "--json")
    assert (answer.code, answer.error["code"]) == (5, "store_corrupt")
    assert str(Path("agent.db").absolute()) in answer.error["message"]
    nowhere = cli("sessions", "list", "--store", "sqlite:////", "--json")
    assert (nowhere.code, nowhere.error["message"]) == (2, "path: / is a folder")


# -- how it ends


def test_every_error_of_satchel_has_its_exit_code() -> None:
    unmapped = [
        kind.__name__
        for kind in vars(satchel).values()
        if isinstance(kind, type)
        and issubclass(kind, SatchelError)
        and kind not in (SatchelError, satchel.StoreMisused)  # the root, and a fault of ours
        and exit_code_of(kind.__new__(kind)) is ExitCode.UNEXPECTED
    ]
    assert unmapped == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidCursor(), 2),
        (Unauthenticated(), 2),
        (RunNotFound("run_x"), 3),
        (SessionClosed("sess_x"), 4),
        (IdempotencyMismatch(), 4),
        (NotAllowed(role="user", action="x"), 4),
        (StoreBusy(), 5),
        (StoreCorrupt("x"), 5),
        (OutcomeUnknown("x"), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line_and_one_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: SatchelError, code: int
) -> None:
    make_session()

    async def refuse(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(SessionManager, "list_sessions", refuse)
    answer = cli("sessions", "list")
    assert (answer.code, answer.err) == (code, f"satchel: {error}\n")
    assert cli("sessions", "list", "--json").error == {"code": error.code, "message": str(error)}


def test_what_nobody_foresaw_is_one_line_unless_somebody_debugs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()

    async def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("by \x1b[2J zero")

    monkeypatch.setattr(SessionManager, "list_sessions", fail)
    answer = cli("sessions", "list")
    assert answer.code == 1
    assert answer.err == "satchel: unexpected ZeroDivisionError: by \\x1b[2J zero (SATCHEL_DEBUG=1 shows where)\n"
    monkeypatch.setenv("SATCHEL_DEBUG", "1")
    assert "Traceback" in cli("sessions", "list").err


def test_ctrl_c_is_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()

    async def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SessionManager, "list_sessions", interrupted)
    answer = cli("sessions", "list")
    assert (answer.code, answer.err) == (130, "")


def test_help_whose_reader_leaves_is_quiet(shell: None) -> None:
    read, write = os.pipe()
    os.close(read)
    process = run("--help", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (process.returncode, process.stderr) == (141, b"")


def test_closed_streams_are_no_error_and_nothing_gets_into_the_store(shell: None) -> None:
    session_id = make_session()
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command("sessions", "list")]
    assert subprocess.run(closing, timeout=30, check=False).returncode == 0
    shown = json.loads(run("sessions", "show", session_id, "--json").stdout)
    assert shown["session_id"] == session_id


def test_a_full_disk_is_one_line(shell: None) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    make_session()
    with Path("/dev/full").open("wb") as full:
        process = run("sessions", "list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert process.returncode == 1
    assert process.stderr.startswith(b"satchel: unexpected OSError")
    assert process.stderr.count(b"\n") == 1


# -- terminals


def test_colours_are_for_terminals_and_no_color_ends_them(shell: None) -> None:
    make_session()
    assert b"\x1b" not in run("sessions", "list").stdout
    coloured = Terminal(["sessions", "list"])
    assert coloured.end() == 0
    assert "\x1b[32m" in coloured.shown
    plain = Terminal(["sessions", "list"], NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b[3" not in plain.shown
    assert "ACTIVE" in plain.shown


def test_a_locale_without_chinese_still_gets_the_rest(shell: None) -> None:
    session_id = make_session("启动 failed")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    listed = run("sessions", "list", env=environment)
    assert listed.returncode == 0
    assert session_id.encode() in listed.stdout
    assert b"failed" in listed.stdout
    exported = run("sessions", "export", env=environment)
    assert json.loads(exported.stdout)["satchel"]["title"] == "启动 failed"  # JSON is UTF-8 everywhere


def test_a_tail_on_a_terminal_is_a_line_for_each_event(shell: None) -> None:
    session_id = make_session()
    append(session_id, "多行\n" * 100, UNSAFE)
    terminal = Terminal(["tail", session_id, "--no-follow"], NO_COLOR="1")
    assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert len(lines) == 2
    assert "…" in lines[0]
    assert "\x1b" not in lines[1].replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")


# -- text made safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\nc\rd\te", "a⏎b⏎c⏎d e"),
        ("\x1b[31m\x07\x7f\x9b", "\\x1b[31m\\x07\\x7f\\x9b"),
        ("\u202e\u2066\u2028\ufeff", "\\u202e\\u2066\\u2028\\ufeff"),
        ("中文 👩‍👩‍👧 é", "中文 👩‍👩‍👧 é"),
        ("\ud800", "\\ud800"),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_lines_kept_keeps_lines_alone() -> None:
    assert lines_kept("a\r\nb\x1b\n\tc") == "a\nb\\x1b\n    c"


def test_safe_json_is_the_same_json() -> None:
    text = "".join(map(chr, [*range(0x20, 0x100), 0x61C, *range(0x2000, 0x2070), 0xFEFF, 0x4E2D, 0x1F600]))
    plain = json.dumps({text: text}, ensure_ascii=False).encode()
    safe = safe_json(plain)
    assert json.loads(safe) == json.loads(plain)
    assert one_line(safe.decode()) == safe.decode()


# -- demo


def test_demo_hands_its_flags_on_and_its_code_back(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def run_demo(**options: Any) -> int:
        asked.append(options)
        return 7

    module = ModuleType("satchel.demo.play")
    module.run_demo = run_demo  # type: ignore[attr-defined]  # a stand-in: the demo itself is long, and tested elsewhere
    monkeypatch.setitem(sys.modules, "satchel.demo.play", module)
    monkeypatch.delenv("SATCHEL_STORE")
    assert cli("demo", "--folder", "here", "--keep", "--json").code == 7
    monkeypatch.setenv("SATCHEL_STORE", "sqlite:///of_somebody.db")  # not for a play: it has a variable of its own
    assert cli("demo").code == 7
    assert cli("demo", "--store", "postgresql://db/demo").code == 7
    assert asked == [
        {"folder": Path("here"), "json": True, "keep": True, "store": None},
        {"folder": None, "json": False, "keep": False, "store": None},
        {"folder": None, "json": False, "keep": False, "store": "postgresql://db/demo"},
    ]
    assert cli("demo", "--store", "memory:").code == 2


def test_starting_loads_no_tables_and_no_database(shell: None) -> None:
    """What a command does not need must not slow its start."""
    program = "import sys; from satchel.cli import main; main(['--version']); print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert not {"rich.table", "rich.progress", "sqlite3", "satchel.demo"} & set(loaded.stdout.split())
