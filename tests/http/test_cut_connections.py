"""Clients that repeat what was not answered, over connections that break and a server that is killed: every effect is there
once, and every reply to a key is the same."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.http.crash_points import POINTS, VARIABLE
from tests.http.fault_proxy import FaultProxy
from tests.http.plain import NO_CERTIFICATES
from tests.http.server import Server, developers_key, serving, workers_of

pytestmark = pytest.mark.slow

CLIENTS = 16
SHARE = 0.45
AWAY = 120.0
FLAGS = ("--drain-seconds", "5", "--quiet")


class Restarted:
    """One service, by one server process after another on the same port. ``crashes``: for each of them in turn, where it
    dies by itself (see crash_points)."""

    def __init__(
        self,
        folder: Path,
        servers: ExitStack,
        agents: tuple[str, ...],
        *flags: str,
        crashes: Iterable[str] = (),
    ) -> None:
        self._folder = folder
        self._servers = servers
        self._agents = agents
        self._flags = flags
        self._crashes = iter(crashes)
        self.deaths = 0
        (folder / "satchel.toml").write_text("[server]\nrequests_per_second = 0\nruns_per_user = 0\n")
        self.server = self._start(0)
        self.port = self.server.port

    def _start(self, port: int) -> Server:
        flags = (*FLAGS, *self._flags, "--config", str(self._folder / "satchel.toml"))
        crash = {VARIABLE: next(self._crashes, "")}
        return self._servers.enter_context(
            serving(self._folder, *flags, agents=self._agents, port=port, environment=crash)
        )

    async def keep_up(self) -> None:
        """Start it again whenever it died by itself, until cancelled."""
        while True:
            while self.server.process.poll() is None:  # noqa: ASYNC110  # nobody tells when a process dies
                await asyncio.sleep(0.02)
            assert self.server.process.returncode == -signal.SIGKILL
            self.deaths += 1
            self.server = await asyncio.to_thread(self._start, self.port)

    def restart(self, number: signal.Signals) -> None:
        code = self.server.stop(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        self.server = self._start(self.port)


class Write(NamedTuple):
    method: str
    path: str
    body: dict[str, Any]


def writes(number: int, sessions: list[str]) -> Write:
    """One of each kind in turn; every one can be told apart by its number."""
    session = f"/v1/sessions/{sessions[number % len(sessions)]}"
    text = f"write {number}"
    kinds: list[Callable[[], Write]] = [
        lambda: Write("POST", f"{session}/messages", {"content": text}),
        lambda: Write("POST", f"{session}/messages", {"messages": [{"content": text}, {"content": f"{text} again"}]}),
        lambda: Write("POST", f"{session}/tool-history", {"tool": text, "arguments": {"n": number}, "ok": True}),
        lambda: Write("PATCH", f"{session}/working-memory", {"append": {"completed": text}}),
        lambda: Write("POST", "/v1/sessions", {"title": text}),
        lambda: Write("POST", f"{session}/fork", {"title": text}),
    ]
    return random.Random(number).choices(kinds, [6, 2, 3, 2, 2, 1])[0]()


async def until_answered(client: httpx.AsyncClient, write: Write, key: str) -> httpx.Response:
    """Repeated with the same key, as a client should, for as long as a service may be away."""
    deadline = time.monotonic() + AWAY
    while True:
        assert time.monotonic() < deadline, f"no answer to {write} in {AWAY} s"
        try:
            answer = await client.request(
                write.method, write.path, json=write.body, headers={"Idempotency-Key": key, "Connection": "close"}
            )
        except httpx.TransportError:
            await asyncio.sleep(random.random() * 0.05)
            continue
        if answer.status_code == 503:
            assert "retry-after" in answer.headers
            await asyncio.sleep(random.random() * 0.05)
            continue
        return answer


def facts(answer: httpx.Response) -> Any:
    """What a repeated call must be told alike. A session is read anew; all else is as it was first answered."""
    told = answer.json()
    if "lifecycle" in told:
        return answer.status_code, told["session_id"]
    return answer.status_code, answer.content


async def storm(
    folder: Path, *, operations: int, kills: int = 0, crashes: Sequence[str] = (), workers: int = 1
) -> None:
    """``kills``: of the server, from outside, at any moment; with several ``workers``, of one of them. ``crashes``: points at
    which one server after another dies by itself."""
    with ExitStack() as servers:
        agents = ("--agent", "tests.http.crash_points:nobody") if crashes else ("--no-agents",)
        service = Restarted(folder, servers, agents, "--workers", str(workers), crashes=crashes)
        headers = {"Authorization": f"Bearer {developers_key(folder)}"}
        direct = f"http://127.0.0.1:{service.port}"
        async with (
            FaultProxy.before(service.port, share=SHARE, seed=7) as proxy,
            httpx.AsyncClient(
                verify=NO_CERTIFICATES, base_url=direct, headers=headers, timeout=20, trust_env=False
            ) as sure,
            httpx.AsyncClient(
                verify=NO_CERTIFICATES,
                base_url=f"http://127.0.0.1:{proxy.port}",
                headers=headers,
                timeout=20,
                trust_env=False,
            ) as client,
        ):
            sessions = [(await sure.post("/v1/sessions", json={"title": "held"})).json()["session_id"] for _ in "abcd"]
            todo = iter(range(operations))
            answered: dict[int, list[Any]] = {}

            async def work() -> None:
                for number in todo:
                    write = writes(number, sessions)
                    if workers == 1:
                        answers = [await until_answered(client, write, f"key-{number}") for _ in range(2)]
                    else:  # at once, and perhaps by two processes
                        answers = await asyncio.gather(
                            *(until_answered(client, write, f"key-{number}") for _ in range(2))
                        )
                    assert answers[0].status_code in (200, 201), answers[0].text
                    answered[number] = [facts(answer) for answer in answers]
                    turn = len(answered) * (kills + 1) // operations - 1
                    if 0 <= turn < kills:
                        turns[turn].set()

            turns = [asyncio.Event() for _ in range(kills)]

            async def kill() -> None:
                for turn in turns:
                    await turn.wait()
                    if workers == 1:
                        await asyncio.to_thread(service.restart, signal.SIGKILL)
                    else:  # the others go on, and one is started in its place
                        random.choice(workers_of(service.server)).kill()

            keeping = asyncio.create_task(service.keep_up()) if crashes else None
            await asyncio.gather(kill(), *(work() for _ in range(CLIENTS)))
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait({keeping})
                assert service.deaths == len(crashes), "not every point was reached"
            for number, (first, second) in answered.items():
                assert first == second, writes(number, sessions)
            assert len(answered) == operations
            cut = sum(count for fault, count in proxy.seen.items() if fault != "none")
            assert cut > operations // 2, "too little was cut to prove anything"
            await each_effect_is_there_once(sure, operations, sessions)
        assert service.server.stop() == 0


async def whole(client: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    """All items of all pages."""
    items: list[dict[str, Any]] = []
    query = "?limit=1000"
    while query:
        page = (await client.get(path + query)).json()
        items += page["items"]
        query = f"?limit=1000&cursor={page['next']}" if page["next"] else ""
    return items


async def each_effect_is_there_once(client: httpx.AsyncClient, operations: int, sessions: list[str]) -> None:
    titles = Counter(session["title"] for session in await whole(client, "/v1/sessions"))
    text = ""
    for session_id in sessions:
        events = await whole(client, f"/v1/sessions/{session_id}/events")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "seq has a gap"
        text += json.dumps([event["body"] for event in events])
    for number in range(operations):
        write = writes(number, sessions)
        count = titles[f"write {number}"] if "title" in write.body else text.count(f'"write {number}"')
        assert count == 1, (count, write)


def crash_turns(count: int, *, each: int) -> list[str]:
    """All points in turn, a server each, which dies at about its ``each``th write there."""
    draw = random.Random(11)
    return [f"{POINTS[number % len(POINTS)]}:{draw.randrange(each // 2, each)}" for number in range(count)]


async def test_what_is_cut_and_repeated_is_done_once_though_the_server_dies_around_its_commits(tmp_path: Path) -> None:
    await storm(tmp_path, operations=200, crashes=crash_turns(3, each=40))


async def test_what_two_processes_are_asked_at_once_is_done_once(tmp_path: Path) -> None:
    await storm(tmp_path, operations=80, kills=1, workers=2)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_5000_operations_are_each_done_once_though_the_server_dies_around_its_commits(tmp_path: Path) -> None:
    await storm(tmp_path, operations=5_000, crashes=crash_turns(30, each=120))


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_5000_operations_that_several_processes_are_asked_at_once_are_each_done_once(tmp_path: Path) -> None:
    await storm(tmp_path, operations=5_000, kills=15, workers=3)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_5000_operations_that_are_cut_and_repeated_are_each_done_once(tmp_path: Path) -> None:
    await storm(tmp_path, operations=5_000, kills=20)


async def test_duplicates_at_the_same_time_wait_for_the_first_and_the_agent_runs_once(tmp_path: Path) -> None:
    with ExitStack() as servers:
        service = Restarted(tmp_path, servers, ("--agent", "tests.http.agents:echo"))
        headers = {"Authorization": f"Bearer {developers_key(tmp_path)}"}
        url = f"http://127.0.0.1:{service.port}"
        async with httpx.AsyncClient(
            verify=NO_CERTIFICATES, base_url=url, headers=headers, timeout=30, trust_env=False
        ) as client:
            for write in (
                Write("POST", "/v1/chat", {"message": "hello"}),
                Write("POST", "/v1/sessions", {"title": "one"}),
                Write("POST", "/v1/chat", {"message": "hello", "external_id": "talk"}),
            ):
                answers = await asyncio.gather(
                    *(
                        until_answered(client, write, write.path.replace("/", "-") + str(len(write.body)))
                        for _ in range(16)
                    )
                )
                assert {answer.status_code for answer in answers} <= {200, 201}
                told = [answer.json() for answer in answers]
                assert len({one["session_id"] for one in told}) == 1
                assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
                if write.path == "/v1/chat":
                    assert {one["message"]["content"] for one in told} == {"you said hello"}
                    session = f"/v1/sessions/{told[0]['session_id']}"
                    runs = (await client.get(f"{session}/runs")).json()["items"]
                    calls = (await client.get(f"{session}/tool-history")).json()["items"]
                    assert (len(runs), len(calls)) == (1, 1)
                mismatch = await client.post(
                    write.path,
                    json=write.body | {"title" if "title" in write.body else "message": "another"},
                    headers={"Idempotency-Key": write.path.replace("/", "-") + str(len(write.body))},
                )
                assert (mismatch.status_code, mismatch.json()["code"]) == (422, "idempotency_mismatch")


async def load(folder: Path, *, clients: int, seconds: float, restarts: int) -> None:
    """Writers and readers over restarts by SIGTERM."""
    with ExitStack() as servers:
        service = await asyncio.to_thread(Restarted, folder, servers, ("--agent", "tests.http.agents:echo"))
        headers = {"Authorization": f"Bearer {developers_key(folder)}"}
        url = f"http://127.0.0.1:{service.port}"
        limits = httpx.Limits(max_connections=clients)
        stopping = asyncio.Event()
        statuses: set[int] = set()
        async with httpx.AsyncClient(
            verify=NO_CERTIFICATES, base_url=url, headers=headers, timeout=30, trust_env=False, limits=limits
        ) as client:

            async def ask(method: str, path: str, key: str | None = None, **sent: Any) -> httpx.Response:
                while True:
                    try:
                        answer = await client.request(
                            method, path, headers={} if key is None else {"Idempotency-Key": key}, **sent
                        )
                    except httpx.TransportError:
                        await asyncio.sleep(0.05)
                        continue
                    statuses.add(answer.status_code)
                    if answer.status_code == 503:
                        assert "retry-after" in answer.headers
                        await asyncio.sleep(0.05)
                        continue
                    assert answer.status_code < 500, answer.text
                    return answer

            async def converse(number: int) -> tuple[str, list[tuple[int, str]]]:
                session = (await ask("POST", "/v1/sessions", f"session-{number}")).json()["session_id"]
                acknowledged: list[tuple[int, str]] = []
                while not stopping.is_set():
                    text = f"{number}: {len(acknowledged)}"
                    said = await ask(
                        "POST", f"/v1/sessions/{session}/messages", text.replace(": ", "-"), json={"content": text}
                    )
                    assert said.status_code == 201, said.text
                    acknowledged.append((said.json()["seq"], text))
                    if len(acknowledged) % 5 == 0:
                        await ask("GET", f"/v1/sessions/{session}")
                    if len(acknowledged) == 3:
                        chat = {"message": "hi", "session_id": session, "wait": 0}
                        assert (await ask("POST", "/v1/chat", f"chat-{number}", json=chat)).status_code in (200, 202)
                return session, acknowledged

            talking = [asyncio.create_task(converse(number)) for number in range(clients)]
            for _ in range(restarts):
                await asyncio.sleep(seconds / (restarts + 1))
                await asyncio.to_thread(service.restart, signal.SIGTERM)
            await asyncio.sleep(seconds / (restarts + 1))
            stopping.set()
            done = await asyncio.gather(*talking)
            assert statuses <= {200, 201, 202, 503}
            for session, acknowledged in done:
                assert acknowledged
                messages = await whole(client, f"/v1/sessions/{session}/messages")
                stored = [(one["seq"], one["content"]) for one in messages]
                own = [one for one in stored if not one[1].startswith(("hi", "you said"))]
                assert own == acknowledged, "an acknowledged write is lost, or is there twice"


async def test_no_acknowledged_write_is_lost_under_60_clients_and_a_restart(tmp_path: Path) -> None:
    await load(tmp_path, clients=60, seconds=2, restarts=1)


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_no_acknowledged_write_is_lost_under_200_clients_and_restarts(tmp_path: Path) -> None:
    await load(tmp_path, clients=200, seconds=60, restarts=6)
