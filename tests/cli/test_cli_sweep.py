"""`satchel sweep`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from datetime import timedelta

import satchel
from satchel import Policy, Principal, RunManager, SessionManager
from satchel.domain.decisions.lifecycle import DeleteSession
from satchel.domain.ids import SessionRef
from tests.cli.shell import TENANT, Cli, command, make_session

NOTHING = {"visited": 0, "expired": 0, "deleted": 0, "runs_settled": 0, "rows_erased": 0, "failed": 0, "ready": {}}
AGENT = Principal.agent("shop", tenant_id=TENANT, acting_for="ada")


async def leave_work() -> None:
    """A session that is over, one that its retention ends, a lost worker's run, and two runs that wait."""
    async with satchel.open("sqlite:///agent.db") as store:
        short = Policy(idle=timedelta(milliseconds=200))
        await SessionManager(store, AGENT, policy=short).create_session()
        gone = Policy(idle=timedelta(milliseconds=200), retention=timedelta(milliseconds=1))
        await SessionManager(store, AGENT, policy=gone).create_session()
        sessions, runs = SessionManager(store, AGENT), RunManager(store, AGENT)
        lost = await sessions.create_session()
        await runs.add_run(lost.session_id, start=True, lease=0.1)
        for agent in ("coding", "coding", ""):
            session = await sessions.create_session()
            await runs.add_run(session.session_id, agent=agent)
        await asyncio.sleep(0.3)


def test_one_pass_does_what_is_due_once_and_counts_what_waits(cli: Cli) -> None:
    asyncio.run(leave_work())
    report = cli("sweep", "--json")
    assert report.code == 0, report.err
    assert report.json["runs_settled"] == 1
    assert report.json["expired"] == 1
    assert report.json["deleted"] == 1
    assert report.json["failed"] == 0
    assert report.json["ready"] == {"": 1, "coding": 2}
    again = cli("sweep", "--once", "--json").json
    assert again == NOTHING | {"ready": {"": 1, "coding": 2}}
    text = cli("sweep").text
    assert (
        text
        == "0 sessions due: nothing to do; 3 runs ready (2 for coding, 1 that names no agent: no worker takes it)\n"
    )


def test_what_a_deletion_left_is_erased(cli: Cli) -> None:
    session_id = make_session("secret")

    async def interrupted() -> None:
        async with satchel.open("sqlite:///agent.db") as store:
            sessions = SessionManager(store, AGENT)
            await sessions.append_message(session_id, {"role": "user", "content": "Rosebud"})
            ref = SessionRef(TENANT, session_id)
            operator = Principal.operator(tenant_id=TENANT)
            await store.committer.submit(DeleteSession(ref=ref, principal=operator, reason=""))

    asyncio.run(interrupted())
    assert cli("sweep").code == 0
    connection = sqlite3.connect("agent.db")
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM sessions WHERE sweep_at IS NOT NULL").fetchone() == (0,)
    connection.close()


def test_it_sweeps_until_it_is_told_to_stop(cli: Cli) -> None:
    make_session()
    process = subprocess.Popen(
        command("sweep", "--every", "0.1s", "--json"), stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stdout is not None
    passes = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert passes == [NOTHING] * 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    process.stdout.close()


def test_its_flags_are_checked_before_anything_is_opened(cli: Cli) -> None:
    assert cli("sweep", "--once", "--every", "5s").code == 2
    assert cli("sweep", "--every", "0s").code == 2
    assert cli("sweep", "--every", "often").code == 2
    answer = cli("sweep", "--store", "sqlite:///missing.db", "--json")
    assert (answer.code, answer.error["code"]) == (5, "store_missing")
    assert cli("sweep", "--store", "memory:").code == 2


def test_a_session_that_cannot_be_looked_after_is_named_and_the_others_are(cli: Cli) -> None:
    asyncio.run(leave_work())
    connection = sqlite3.connect("agent.db")
    connection.execute("UPDATE sessions SET record = 'x' WHERE lease_until IS NOT NULL")
    connection.commit()
    connection.close()
    answer = cli("sweep", "--json")
    assert answer.code == 5
    assert answer.json["failed"] == 1
    assert answer.json["expired"] == 1
    assert "not_looked_after" in answer.err
