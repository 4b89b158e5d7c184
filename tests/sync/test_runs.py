"""`with manager.run(…)`: the block runs in the calling thread, the lease is renewed behind it."""

from __future__ import annotations

import threading
import time

import pytest

from satchel import RunFenced, Session
from satchel.sync import RunContext, RunManager, SessionManager, open


def test_a_run_is_completed_by_leaving_its_block() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    with manager.run(session_id, goal="find out why", input="repair the start") as run:
        assert isinstance(run, RunContext)
        assert run.session_id == session_id
        assert not run.is_cancelled
        with run.tool("run_shell", {"command": "python3 app.py"}) as call:
            call.result = "ModuleNotFoundError: requests"
        assert call.repeat_of is None
        assert [one.result for one in run.tool_history(tool="run_shell", run_id=run.run.run_id)] == [
            "ModuleNotFoundError: requests"
        ]
        assert run.tool_history(tool="another").items == ()
        run.update_working_memory({"set": {"next_action": "add requests"}, "append": {"completed": "found the cause"}})
        assert run.working_memory().next_action == "add requests"
        assert run.context(max_tokens=2000).messages[-1] == {"role": "user", "content": "repair the start"}
        run.step("scripted", input_tokens=10, output_tokens=5)
        run.append_message({"role": "assistant", "content": "requests is missing"})
        run.stop("answered")
        assert run.session().active_run_id == run.run.run_id == run.attempt.run_id
    session = manager.get_session(session_id)
    [done] = session.runs
    assert (done.status, done.stop_reason, done.steps, done.usage.total_tokens) == ("COMPLETED", "answered", 2, 15)
    assert [(call.tool, call.status, call.result) for call in session.tool_history] == [
        ("run_shell", "succeeded", "ModuleNotFoundError: requests")
    ]
    assert [message.role for message in session.messages] == ["user", "assistant"]
    assert session.messages[-1].run_id == done.run_id


class Broken(Exception):
    pass


def test_what_a_session_holds_is_printed_in_brief() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    with (
        manager.run(session_id, goal="find out why", input="x" * 5000) as run,
        run.tool("look", {"at": "y" * 5000}) as call,
    ):
        call.result = "z" * 5000
    with pytest.raises(Broken), manager.run(session_id):
        raise Broken
    session = manager.get_session(session_id)
    [done, failed], [looked] = session.runs, session.tool_history
    assert repr(done).startswith(f"Run(run_id='{done.run_id}', number=1, goal='find out why', agent='', input={{'role'")
    assert repr(done).endswith("…, status='COMPLETED')")
    assert repr(failed).endswith(", input=None, status='FAILED', error='agent_error')")
    assert repr(looked).startswith("ToolCall(seq=4, tool='look', arguments={'at': 'yyy")
    assert repr(looked).endswith("zz…')")
    assert max(len(repr(one)) for one in (done, failed, looked, session.messages[0])) < 300


@pytest.mark.parametrize("error", [Broken("no such file"), StopIteration("no such file")], ids=["error", "stop"])
def test_an_error_in_the_block_fails_the_call_and_the_run_and_is_raised_as_it_was(error: Exception) -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    with pytest.raises(type(error)) as raised, manager.run(session_id) as run, run.tool("read_file"):
        raise error
    assert raised.value is error
    session = manager.get_session(session_id)
    assert session.tool_history[0].status == "failed"
    assert session.runs[0].status == "FAILED"
    assert session.runs[0].error is not None
    assert "no such file" in session.runs[0].error.message


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_of_the_block_cancels_the_call_and_the_run(interruption: type[BaseException]) -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    with pytest.raises(interruption), manager.run(session_id) as run, run.tool("run_shell"):
        raise interruption
    session = manager.get_session(session_id)
    assert session.tool_history[0].status == "cancelled"
    assert session.runs[0].status == "CANCELLED"
    assert session.active_run_id is None


def test_runs_of_two_threads_take_turns() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    inside: list[str] = []
    most = 0

    def work(name: str) -> None:
        nonlocal most
        with manager.run(session_id, goal=name, input=f"do {name}") as run:
            inside.append(name)
            most = max(most, len(inside))
            run.append_message({"role": "assistant", "content": f"did {name}"})
            time.sleep(0.01)
            inside.remove(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    session = manager.get_session(session_id)
    assert most == 1
    assert [run.status for run in session.runs] == ["COMPLETED"] * 4
    said = [str(message.content) for message in session.messages]
    assert [text.replace("did", "do") for text in said[1::2]] == said[0::2]  # each question beside its answer


def test_the_lease_is_renewed_while_the_block_blocks() -> None:
    with open("memory:") as store:
        manager, runs = SessionManager(store), RunManager(store)
        session_id = manager.create_session().session_id
        with manager.run(session_id, lease=0.15) as run:
            time.sleep(0.5)
            run.append_message({"role": "assistant", "content": "still here"})
            runs.cancel_run(session_id, run.run.run_id)
            deadline = time.monotonic() + 10
            while not run.is_cancelled and time.monotonic() < deadline:
                time.sleep(0.01)
            assert run.is_cancelled  # learned by the next renewal
        assert manager.get_session(session_id).runs[0].status == "CANCELLED"


def test_a_run_that_was_ended_by_a_close_is_fenced() -> None:
    manager = SessionManager()
    session = manager.create_session()
    with pytest.raises(RunFenced):
        write_after_the_close(manager, session)
    assert manager.get_session(session.session_id).runs[0].stop_reason == "session_closed"


def write_after_the_close(manager: SessionManager, session: Session) -> None:
    with manager.run(session.session_id) as run:
        manager.close_session(session.session_id)
        manager.restore_session(session.session_id)
        run.append_message({"role": "assistant", "content": "too late"})


def test_a_child_run_and_a_layer_from_blocking_code() -> None:
    manager = SessionManager()
    session_id = manager.create_session().session_id
    with manager.run(session_id, goal="look", memory="run") as run:
        with run.child("read the logs", agent="reader") as child:
            assert isinstance(child, RunContext)
            child.append_message({"role": "assistant", "content": "found it"})
            child.update_working_memory({"append": {"completed": "read the logs"}})
        assert "found it" not in str(run.context().messages)
        assert run.working_memory().completed == ("read the logs",)
        assert manager.get_working_memory(session_id).is_empty
    parent, part = manager.get_session(session_id).runs
    assert (part.status, part.parent_run_id, part.agent) == ("COMPLETED", parent.run_id, "reader")
    assert manager.get_working_memory(session_id).completed == ("read the logs",)
