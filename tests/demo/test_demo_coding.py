"""Promises of the coding agent's tools."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.demo import CodingTools, ToolFailed

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret.txt").write_text("secret")
    return path


@pytest.fixture
def tools(tmp_path: Path, outside: Path) -> CodingTools:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return CodingTools(folder)


def is_alive(process: int) -> bool:
    """True for a process that still runs; a zombie, which only waits for its parent, is dead."""
    if sys.platform != "linux":
        found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
        return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def written_pids(folder: Path) -> list[int]:
    return [int(text) for path in folder.glob("*.pid") if (text := path.read_text().strip())]


# A child, one in a session of its own, and an orphan of a double fork that ignores the polite signals.
FAMILY = """\
sh -c 'echo $$ > child.pid; exec sleep 300' &
setsid sh -c 'echo $$ > session.pid; exec sleep 300' &
(setsid sh -c 'trap "" TERM HUP INT; echo $$ > orphan.pid; while :; do sleep 1; done' > /dev/null 2>&1 &)
while [ ! -s child.pid ] || [ ! -s session.pid ] || [ ! -s orphan.pid ]; do sleep 0.02; done
"""


# Files


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.txt", "a/../../outside/secret.txt", "..", "/etc/hostname", "", ".", "./", "a\0b", "\ud800"],
)
async def test_a_path_that_leads_out_is_refused(tools: CodingTools, outside: Path, path: str) -> None:
    with pytest.raises(ToolFailed):
        await tools.read_file(path)
    with pytest.raises(ToolFailed):
        await tools.write_file(path, "changed")
    assert (outside / "secret.txt").read_text() == "secret"


async def test_an_absolute_path_is_refused_even_inside_the_folder(tools: CodingTools) -> None:
    (tools.folder / "a.txt").write_text("a")
    with pytest.raises(ToolFailed, match="absolute"):
        await tools.read_file(str(tools.folder / "a.txt"))


async def test_a_symbolic_link_is_followed_neither_as_a_file_nor_as_a_folder(tools: CodingTools, outside: Path) -> None:
    (tools.folder / "file").symlink_to(outside / "secret.txt")
    (tools.folder / "folder").symlink_to(outside)
    (tools.folder / "dangling").symlink_to(outside / "new.txt")
    for path in ("file", "folder/secret.txt", "folder/new.txt", "folder/deep/new.txt", "dangling"):
        with pytest.raises(ToolFailed, match="symbolic link"):
            await tools.write_file(path, "changed")
        with pytest.raises(ToolFailed, match="symbolic link"):
            await tools.read_file(path)
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"
    assert await tools.list_files() == {"files": [], "truncated": False}


async def test_a_write_does_not_go_through_a_hard_link(tools: CodingTools, outside: Path) -> None:
    os.link(outside / "secret.txt", tools.folder / "linked.txt")
    await tools.write_file("linked.txt", "changed")
    assert (outside / "secret.txt").read_text() == "secret"
    assert (await tools.read_file("linked.txt"))["content"] == "changed"


async def test_a_named_pipe_is_refused_and_not_waited_for(tools: CodingTools) -> None:
    os.mkfifo(tools.folder / "pipe")
    async with asyncio.timeout(5):
        with pytest.raises(ToolFailed, match="not a regular file"):
            await tools.read_file("pipe")
        with pytest.raises(ToolFailed, match="not a regular file"):
            await tools.write_file("pipe", "x")


async def test_what_is_written_is_read_back_and_listed(tools: CodingTools) -> None:
    text = "公告板 🎒\r\n\tend\x00"
    made = await tools.write_file("docs/./notes/新.txt", text)
    assert made == {"path": "docs/notes/新.txt", "bytes": len(text.encode()), "created": True}
    again = await tools.write_file("docs/notes/新.txt", text)
    assert again["created"] is False
    found = await tools.read_file("docs/notes/新.txt")
    assert found == {"path": "docs/notes/新.txt", "content": text, "bytes": len(text.encode()), "truncated": False}
    await tools.write_file("a.txt", "")
    assert (await tools.list_files())["files"] == ["a.txt", "docs/notes/新.txt"]


async def test_a_rewritten_file_keeps_its_mode_and_leaves_nothing_beside_it(tools: CodingTools) -> None:
    script = tools.folder / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    await tools.write_file("run.sh", "new")
    assert script.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in tools.folder.iterdir()] == ["run.sh"]


async def test_a_long_file_is_cut_between_characters_and_says_so(tools: CodingTools) -> None:
    (tools.folder / "long.txt").write_text("a" + "中" * 200_000, encoding="utf-8")
    found = await tools.read_file("long.txt")
    assert found["truncated"] is True
    assert found["bytes"] == 600_001
    assert set(found["content"]) == {"a", "中"}


@pytest.mark.parametrize("path", ["absent.txt", "absent/deep.txt", "folder", "binary.bin", "a.txt/b.txt", "x" * 300])
async def test_what_cannot_be_read_fails_without_telling_where_the_folder_is(tools: CodingTools, path: str) -> None:
    (tools.folder / "folder").mkdir()
    (tools.folder / "a.txt").write_text("a")
    (tools.folder / "binary.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ToolFailed) as failed:
        await tools.read_file(path)
    assert str(tools.folder) not in failed.value.message


async def test_content_that_is_no_unicode_or_too_long_is_refused_and_nothing_is_written(tools: CodingTools) -> None:
    for content in ("\udcff", "x" * (1024 * 1024 + 1)):
        with pytest.raises(ToolFailed):
            await tools.write_file("a.txt", content)
    assert list(tools.folder.iterdir()) == []


# Shell


async def test_a_command_answers_with_code_and_both_streams(tools: CodingTools) -> None:
    result = await tools.run_shell("pwd; echo 错误 >&2; cat; exit 3")
    assert result["stdout"] == f"{tools.folder}\n"
    assert result["stderr"] == "错误\n"
    assert (result["exit_code"], result["timed_out"], result["truncated"]) == (3, False, False)
    assert 0 <= result["duration_ms"] < 20_000
    assert json.loads(json.dumps(result)) == result


async def test_a_command_ended_by_a_signal_has_128_and_its_number(tools: CodingTools) -> None:
    assert (await tools.run_shell("kill -9 $$"))["exit_code"] == 128 + signal.SIGKILL


async def test_the_environment_holds_no_secret_and_no_proxy(
    tools: CodingTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "marker-1")
    monkeypatch.setenv("HTTPS_PROXY", "http://marker-2:1")
    monkeypatch.setenv("PIP_INDEX_URL", "https://name:marker-3@example.org/simple")
    monkeypatch.setenv("PYTHONPATH", "/marker-4")
    monkeypatch.setenv("PIP_FIND_LINKS", "/some/wheels")
    stdout = (await tools.run_shell("env"))["stdout"]
    assert "marker" not in stdout
    seen = dict(line.split("=", 1) for line in stdout.splitlines())
    assert seen["HOME"] == str(tools.folder / ".home")
    assert seen["PATH"].startswith(str(tools.folder / ".venv" / "bin") + ":")
    assert seen["PIP_FIND_LINKS"] == "/some/wheels"


async def test_long_output_is_drained_and_its_two_ends_are_kept(tools: CodingTools) -> None:
    result = await tools.run_shell(
        "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; echo short >&2"
    )
    assert result["exit_code"] == 0
    assert result["truncated"] is True
    assert result["stdout"].startswith("first\nxxx")
    assert result["stdout"].endswith("xxx\nlast\n")
    assert "truncated: " in result["stdout"]
    assert len(result["stdout"].encode()) < 64 * 1024 + 100
    assert result["stderr"] == "short\n"


async def test_output_of_exactly_the_limit_is_whole(tools: CodingTools) -> None:
    result = await tools.run_shell("head -c 65536 /dev/zero | tr '\\0' x")
    assert (len(result["stdout"]), result["truncated"]) == (65536, False)
    result = await tools.run_shell("head -c 65537 /dev/zero | tr '\\0' x")
    assert (result["truncated"], "truncated: 1 bytes" in result["stdout"]) == (True, True)


async def test_bytes_that_are_no_text_are_replaced(tools: CodingTools) -> None:
    assert (await tools.run_shell(r"printf '\377\000ok'"))["stdout"] == "\ufffd\0ok"


@pytest.mark.parametrize(
    ("command", "timeout"),
    [("true", 0), ("true", -1), ("true", float("nan")), ("true", 1e9), ("a\0b", 1), ("\ud800", 1)],
)
async def test_a_command_that_cannot_run_fails(tools: CodingTools, command: str, timeout: float) -> None:
    with pytest.raises(ToolFailed):
        await tools.run_shell(command, timeout=timeout)


async def test_a_timeout_kills_grandchildren_too_and_keeps_what_was_written(tools: CodingTools) -> None:
    start = time.monotonic()
    result = await tools.run_shell(f"{FAMILY} echo started; sleep 300", timeout=2.0)
    assert time.monotonic() - start < 8
    assert (result["timed_out"], result["exit_code"], result["stdout"]) == (True, None, "started\n")
    pids = written_pids(tools.folder)
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


async def test_what_a_command_leaves_behind_ends_with_it(tools: CodingTools) -> None:
    result = await tools.run_shell(f"{FAMILY} echo done")
    assert (result["exit_code"], result["stdout"]) == (0, "done\n")
    pids = written_pids(tools.folder)
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


async def test_a_cancelled_call_is_over_when_it_raises(tools: CodingTools) -> None:
    call = asyncio.create_task(tools.run_shell(f"{FAMILY} sleep 300", timeout=60))
    assert await asyncio.to_thread(wait_until, lambda: len(written_pids(tools.folder)) == 3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(is_alive(pid) for pid in written_pids(tools.folder))


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.01, 0.03])
async def test_a_call_cancelled_while_it_starts_leaves_nothing(tools: CodingTools, delay: float) -> None:
    call = asyncio.create_task(tools.run_shell("echo $$ > shell.pid; sleep 300", timeout=60))
    await asyncio.sleep(delay)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(is_alive(pid) for pid in written_pids(tools.folder))


@pytest.mark.skipif(sys.platform != "linux", reason="descendants that left the group are found on Linux only")
@pytest.mark.parametrize("run_in", ["main thread", "other thread"])
def test_a_command_dies_with_its_parent_that_was_killed_hard(tmp_path: Path, run_in: str) -> None:
    program = (
        "import asyncio, sys, threading\n"
        "from satchel.demo import CodingTools\n"
        "def main(): asyncio.run(CodingTools(sys.argv[1]).run_shell(sys.argv[2], timeout=60))\n"
        "thread = threading.Thread(target=main)\n"
        "thread.start() if sys.argv[3] == 'other thread' else main()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), f"{FAMILY} sleep 300", run_in],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    try:
        assert wait_until(lambda: len(written_pids(tmp_path)) == 3)
    finally:
        parent.kill()
        parent.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in written_pids(tmp_path)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("blow", "code"), [("KILL", 128 + signal.SIGKILL), ("STOP", None)])
async def test_a_command_that_attacks_its_supervisor_still_ends(
    tools: CodingTools, blow: str, code: int | None
) -> None:
    start = time.monotonic()
    command = f"sleep 300 & echo $! > child.pid; echo $$ > shell.pid; kill -{blow} $PPID; echo done; sleep 300"
    result = await tools.run_shell(command, timeout=1)
    assert time.monotonic() - start < 15
    assert (result["exit_code"], result["timed_out"]) == (code, code is None)
    pids = written_pids(tools.folder)
    assert len(pids) == 2
    assert await asyncio.to_thread(wait_until, lambda: not any(is_alive(pid) for pid in pids))


async def test_many_commands_run_beside_each_other(tools: CodingTools) -> None:
    results = await asyncio.gather(*(tools.run_shell(f"sleep 0.1; echo {number}") for number in range(8)))
    assert [result["stdout"] for result in results] == [f"{number}\n" for number in range(8)]
