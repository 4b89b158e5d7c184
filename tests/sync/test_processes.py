"""What a process does to the background thread: Ctrl-C, fork, and its end. Each scene is a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, sys, threading, time
import satchel.sync
from satchel import Principal, StoreMisused
from satchel.sync import RunManager, SessionManager, open

AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")
HELLO = {"role": "user", "content": "hello"}

def press_ctrl_c(delay=0.3):
    main = threading.main_thread().ident
    threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT)).start()

def in_child(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def play(scene: str, folder: Path) -> str:
    """Its standard output. Whatever it writes beside that is a failure: warnings, threads that die at the end."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + textwrap.dedent(scene)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        check=False,
    )
    # Development mode also tells of callbacks that took long, which says how busy the machine was and nothing else.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (said, done.returncode) == ([], 0)
    return done.stdout


needs_signals = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork")


@needs_signals
def test_ctrl_c_ends_a_follower_and_leaves_the_loop_usable(tmp_path: Path) -> None:
    scene = """
    manager = SessionManager()
    session = manager.create_session()
    press_ctrl_c()
    started = time.monotonic()
    try:
        for event in manager.follow(session.session_id):
            pass
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - started < 3)
    print(manager.append_message(session.session_id, HELLO).seq)
    """
    assert play(scene, tmp_path).split() == ["interrupted", "True", "1"]


@needs_signals
def test_ctrl_c_while_a_run_waits_for_its_turn_cancels_that_run(tmp_path: Path) -> None:
    scene = """
    with open("memory:") as store:
        manager, runs = SessionManager(store), RunManager(store)
        session = manager.create_session()
        holder = runs.add_run(session.session_id, start=True)
        press_ctrl_c()
        try:
            with manager.run(session.session_id, input="and this?"):
                print("never")
        except KeyboardInterrupt:
            print(*(run.status for run in runs.list_runs(session.session_id)))
            print(*(message.status for message in manager.messages(session.session_id)))
    """
    assert play(scene, tmp_path).split() == ["CANCELLED", "RUNNING", "unanswered"]


@needs_fork
def test_a_manager_from_before_a_fork_is_refused_and_a_new_one_works(tmp_path: Path) -> None:
    scene = """
    with open("sqlite:///agent.db") as store:
        manager = SessionManager(store, AGENT)
        session = manager.create_session()
        events = manager.follow(session.session_id, after=0)
        manager.append_message(session.session_id, HELLO)
        assert next(events).seq == 1

        def child():
            for use in (
                lambda: manager.get_session(session.session_id),
                lambda: next(events),
                lambda: SessionManager(store, AGENT).create_session(),
            ):
                try:
                    use()
                except StoreMisused as refused:
                    assert "forked" in str(refused), refused
                    print("refused")
            events.close()
            store.close()  # the parent's: nothing happens
            with open("sqlite:///agent.db") as own:
                print(SessionManager(own, AGENT).append_message(session.session_id, HELLO).seq)

        in_child(child)
        print(next(events).seq, manager.append_message(session.session_id, HELLO).seq)
    """
    assert play(scene, tmp_path).split() == ["refused", "refused", "refused", "2", "2", "3"]


@needs_fork
def test_a_manager_that_made_no_call_before_the_fork_works_in_the_child(tmp_path: Path) -> None:
    scene = """
    manager = SessionManager()
    in_child(lambda: print(manager.create_session().status))
    print(manager.create_session().status)
    """
    assert play(scene, tmp_path).split() == ["ACTIVE", "ACTIVE"]


@needs_fork
def test_a_fork_while_threads_call_does_not_hang_the_child(tmp_path: Path) -> None:
    scene = """
    manager = SessionManager()
    session = manager.create_session()
    busy = True

    def write():
        while busy:
            manager.append_message(session.session_id, HELLO)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        in_child(lambda: SessionManager().create_session())
    busy = False
    for thread in threads:
        thread.join()
    print(manager.get_session(session.session_id).version > 0)
    """
    assert play(scene, tmp_path).split() == ["True"]


ENDS = {
    "a private memory": """
        manager = SessionManager()
        manager.create_session()
    """,
    "a manager that was never used": "manager = SessionManager()",
    "a store that nobody closed": """
        store = open("sqlite:///agent.db").open()
        manager = SessionManager(store, AGENT)
        manager.append_message(manager.create_session(external_id="a").session_id, HELLO)
    """,
    "an iterator in the middle": """
        manager = SessionManager()
        session = manager.create_session()
        manager.append_message(session.session_id, HELLO)
        events = manager.follow(session.session_id, after=0)
        next(events)
    """,
    "daemon threads in the middle of a call": """
        manager = SessionManager()
        session = manager.create_session()

        def follow():
            for event in manager.follow(session.session_id):
                pass

        def work():
            with manager.run(session.session_id) as run, run.tool("sleep"):
                time.sleep(60)

        def write():
            other = manager.create_session()
            while True:
                manager.append_message(other.session_id, HELLO)

        for target in (follow, work, write, write, write):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.2)
    """,
    "daemon threads that write to a file": """
        store = open("sqlite:///agent.db").open()
        manager = SessionManager(store, AGENT)

        def write():
            session = manager.create_session()
            with manager.run(session.session_id) as run:
                while True:
                    run.append_message({"role": "assistant", "content": "hello"})

        for _ in range(4):
            threading.Thread(target=write, daemon=True).start()
        time.sleep(0.3)
    """,
    "a thread that is still writing": """
        manager = SessionManager()
        session = manager.create_session()

        def write():
            time.sleep(0.2)
            for _ in range(50):
                manager.append_message(session.session_id, HELLO)
            assert manager.get_session(session.session_id).version == 50

        threading.Thread(target=write).start()
    """,
    "a function that runs at the very end": """
        import atexit
        manager = SessionManager()
        session = manager.create_session()
        atexit._clear()  # so that nothing runs after it
        atexit.register(lambda: manager.close_session(session.session_id))
    """,
}


@pytest.mark.parametrize("scene", ENDS.values(), ids=ENDS.keys())
def test_a_process_ends_quietly_with(scene: str, tmp_path: Path) -> None:
    assert play(textwrap.dedent(scene) + "\nprint('end')", tmp_path) == "end\n"


def test_what_was_acknowledged_is_there_after_an_end_without_close(tmp_path: Path) -> None:
    play(textwrap.dedent(ENDS["a store that nobody closed"]), tmp_path)
    scene = """
    with open("sqlite:///agent.db") as store:
        session = SessionManager(store, AGENT).create_session(external_id="a")
        print(session.message_count, session.messages[0].content)
    """
    assert play(scene, tmp_path).split() == ["1", "hello"]
