"""A real server process: its first start, its streams, its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from tests.http.plain import NO_CERTIFICATES
from tests.http.server import (
    ROOT,
    SATCHEL,
    Server,
    client_of,
    developers_key,
    frames_of,
    make_key,
    revoke,
    serving,
    workers_of,
)

pytestmark = pytest.mark.slow


class Impatient(NamedTuple):
    server: Server
    folder: Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder, "--drain-seconds", "5") as running:
        yield running


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impatient]:
    """A server that waits for nobody, and beats fast; and its folder."""
    folder = tmp_path_factory.mktemp("impatient")
    settings = "header_seconds = 0.5\nbody_seconds = 0.5\nheartbeat_seconds = 0.3\nstreams_per_user = 2\n"
    (folder / "satchel.toml").write_text(f"[server]\n{settings}")
    with serving(folder, "--config", str(folder / "satchel.toml"), agents=("--no-agents",)) as running:
        yield Impatient(running, folder)


@pytest.fixture
def client(server: Server, folder: Path) -> Iterator[httpx.Client]:
    with client_of(server, developers_key(folder)) as made:
        yield made


def new_session(client: httpx.Client, **fields: Any) -> str:
    return f"/v1/sessions/{client.post('/v1/sessions', json=fields).json()['session_id']}"


def start_slow(client: httpx.Client, session: str, lines: int) -> str:
    run = client.post(f"{session}/runs", json={"agent": "slow", "input": "go", "metadata": {"lines": lines}})
    assert run.status_code == 201, run.text
    run_id: str = run.json()["run_id"]
    return run_id


# -- the first start


def test_a_key_is_made_at_the_first_start_for_its_owner_alone(server: Server, folder: Path) -> None:
    path = folder / "service.db.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert developers_key(folder) not in server.ready
    assert developers_key(folder) not in server.log.read_text()


def test_where_the_first_keys_file_cannot_be_written_no_key_is_made_and_it_serves(tmp_path: Path) -> None:
    (tmp_path / "service.db.key").mkdir()  # a folder, where the file would be
    for _ in range(2):
        with serving(tmp_path, agents=("--no-agents",)) as running:
            assert "Bearer $KEY" in running.ready
            assert httpx.get(f"{running.url}/readyz", verify=NO_CERTIFICATES).status_code == 200
            assert "no key for development was made" in running.log.read_text()
            store = f"sqlite:///{tmp_path}/service.db"
            listed = subprocess.run(
                [*SATCHEL, "keys", "list", "--store", store, "--json"], capture_output=True, text=True, check=True
            )
            assert "key_id" not in listed.stdout
            assert running.stop() == 0
    assert [path.name for path in tmp_path.glob("*.new")] == []


def test_the_line_that_it_prints_works(server: Server) -> None:
    answer = subprocess.run(["bash", "-c", server.ready], capture_output=True, text=True, check=True, timeout=60)
    assert '"status":"COMPLETED"' in answer.stdout
    assert "you said hello" in answer.stdout


def test_the_line_of_a_server_without_agents_works_once_it_names_one_that_a_worker_serves(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-agents", agents=()) as alone:
        store = f"sqlite:///{tmp_path}/service.db"
        serve = [*SATCHEL, "worker", "--agent", "tests.http.agents:echo", "--store", store]
        worker = subprocess.Popen(serve, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            named = alone.ready.replace("YOUR-AGENT", "echo")
            assert named != alone.ready
            answer = subprocess.run(["bash", "-c", named], capture_output=True, text=True, check=True, timeout=60)
        finally:
            worker.terminate()
            worker.wait(60)
        assert "you said hello" in answer.stdout
        told = [line["message"] for line in alone.logged() if "YOUR-AGENT" in line["message"]]
    assert told == [f"YOUR-AGENT: one that a worker serves: satchel worker --agent MODULE:OBJECT --store {store}"]


def test_keys_of_the_command_line_are_taken_at_once_and_refused_when_revoked(server: Server, folder: Path) -> None:
    key = make_key(folder, "--tenant", "acme", "--role", "user", "--user", "ada")
    with client_of(server, key) as ada:
        session = ada.post("/v1/sessions").json()
        assert (session["tenant_id"], session["user_id"]) == ("acme", "ada")
        revoke(folder, key)
        deadline = time.monotonic() + 10
        while ada.get("/v1/sessions").status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)


# -- streams


def test_a_stream_shows_a_run_to_its_end_and_is_not_begun_again(client: httpx.Client) -> None:
    session = new_session(client)
    run_id = start_slow(client, session, 3)
    url = f"{session}/events?run_id={run_id}"
    sse = {"Accept": "text/event-stream"}
    with client.stream("GET", url, headers=sse) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-accel-buffering"] == "no"
        frames = list(frames_of(stream.iter_lines()))
    assert frames[0] == {"retry": "2000"}
    assert frames[-1] == {"event": "end", "data": {"reason": "run_ended"}}
    events = frames[1:-1]
    assert [int(frame["id"]) for frame in events] == [frame["data"]["seq"] for frame in events]
    assert events[-1]["event"] == "run_ended"
    log = client.get(f"{session}/events", params={"run_id": run_id}).json()["items"]
    assert [frame["data"] for frame in events] == log

    last = client.get(url, headers=sse | {"Last-Event-ID": events[-1]["id"]})
    assert (last.status_code, last.content) == (204, b"")


def test_reconnects_lose_and_repeat_nothing(client: httpx.Client) -> None:
    session = new_session(client)
    run_id = start_slow(client, session, 12)
    seen: list[int] = []
    connections = 0
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(seen[-1])} if seen else {})
        with client.stream("GET", f"{session}/events?run_id={run_id}", headers=headers) as stream:
            if stream.status_code == 204:
                break
            connections += 1
            for count, frame in enumerate(frames_of(stream.iter_lines())):
                if "id" in frame:
                    seen.append(int(frame["id"]))
                if count == 4:
                    break  # the connection breaks off
    log = [event["seq"] for event in client.get(f"{session}/events", params={"run_id": run_id}).json()["items"]]
    assert seen == log
    assert connections > 2


def test_a_stream_of_a_session_ends_when_it_is_deleted(client: httpx.Client) -> None:
    session = new_session(client)
    client.post(f"{session}/messages", json={"content": "one"})
    with client.stream("GET", f"{session}/events", headers={"Accept": "text/event-stream"}) as stream:
        frames = frames_of(stream.iter_lines())
        assert [next(frames).get("event") for _ in range(2)] == [None, "message"]
        client.delete(session)
        assert list(frames)[-1] == {"event": "end", "data": {"reason": "gone"}}


def test_a_chat_is_streamed_and_goes_on_without_its_client(client: httpx.Client) -> None:
    body = {"message": "hello", "stream": True, "agent": "slow"}
    with client.stream("POST", "/v1/chat", json=body) as stream:
        frames = frames_of(stream.iter_lines())
        assert next(frames) == {"retry": "2000"}
        chat = next(frames)
        assert chat["event"] == "run"
        session, run_id = f"/v1/sessions/{chat['data']['session_id']}", chat["data"]["run"]["run_id"]
        assert next(frames)["event"] == "run_added"
    time.sleep(0.3)
    run = client.get(f"{session}/runs/{run_id}").json()
    assert run["status"] == "RUNNING"
    assert client.post(f"{session}/runs/{run_id}/cancel").status_code == 200
    deadline = time.monotonic() + 10
    while client.get(f"{session}/runs/{run_id}").json()["status"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_chat_answers_with_the_agents_message(client: httpx.Client) -> None:
    answer = client.post("/v1/chat", json={"message": "hello", "external_id": "talk"})
    chat = answer.json()
    assert (answer.status_code, chat["run"]["status"]) == (200, "COMPLETED")
    assert chat["message"]["content"] == "you said hello"
    again = client.post("/v1/chat", json={"message": {"content": "more"}, "session_id": chat["session_id"]}).json()
    assert (again["message"]["content"], again["run"]["number"]) == ("you said more", 2)


def test_what_is_being_said_is_streamed_before_it_is_final(client: httpx.Client) -> None:
    body = {"message": "speak", "stream": True, "agent": "speaker"}
    with client.stream("POST", "/v1/chat", json=body) as stream:
        frames = list(frames_of(stream.iter_lines()))
    deltas = [frame for frame in frames if frame.get("event") == "text_delta"]
    assert "".join(frame["data"]["text"] for frame in deltas) == "one two three"
    assert len(deltas) > 1
    assert all("id" not in frame for frame in deltas)
    final = next(frame for frame in frames if frame.get("event") == "message" and "streamed" in frame["data"])
    assert final["data"]["body"]["content"] == "one two three"
    assert frames.index(final) > frames.index(deltas[-1])
    session = f"/v1/sessions/{frames[1]['data']['session_id']}"
    url = f"{session}/events?run_id={frames[1]['data']['run']['run_id']}&text=false"
    with client.stream("GET", url, headers={"Accept": "text/event-stream"}) as stream:
        again = list(frames_of(stream.iter_lines()))
    assert all(frame.get("event") != "text_delta" for frame in again)


def test_a_run_that_asks_is_answered_over_http(client: httpx.Client) -> None:
    chat = client.post("/v1/chat", json={"message": "paint", "agent": "asker", "wait": 0}).json()
    url = f"/v1/sessions/{chat['session_id']}/runs/{chat['run']['run_id']}"
    deadline = time.monotonic() + 20
    while (run := client.get(url).json())["status"] != "WAITING":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (run["question"]["name"], run["question"]["question"]) == ("colour", "Which colour?")
    wrong = client.post(f"{url}/answer", json={"answer": "green"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/answer")
    assert client.post(f"{url}/answer", json={"answer": "red", "name": "size"}).json()["code"] == "other_question"
    assert client.post(f"{url}/answer", json={"answer": "red"}).json()["status"] == "READY"
    while (run := client.get(url).json())["status"] != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = client.get(f"/v1/sessions/{chat['session_id']}/messages").json()["items"]
    assert said[-1]["content"] == "red it is"


def test_a_stream_beats_and_ends_when_its_key_is_revoked(impatient: Impatient) -> None:
    server, folder = impatient
    key = make_key(folder, "--tenant", "acme", "--role", "user", "--user", "ada")
    sse = {"Accept": "text/event-stream"}
    with client_of(server, key) as ada:
        session = new_session(ada)
        with (
            ada.stream("GET", f"{session}/events", headers=sse) as stream,
            ada.stream("GET", f"{session}/events", headers=sse),
        ):
            third = ada.get(f"{session}/events", headers=sse)
            assert (third.status_code, third.json()["code"]) == (429, "too_many_streams")
            frames = frames_of(stream.iter_lines())
            assert next(frames) == {"retry": "2000"}
            assert next(frames) == {"comment": "still here"}
            revoke(folder, key)
            rest = list(frames)
    assert rest[-1] == {"event": "end", "data": {"reason": "unauthorized"}}
    assert all(frame == {"comment": "still here"} for frame in rest[:-1])


# -- what is no request


def raw(server: Server, data: bytes, *, wait: float = 10.0) -> bytes:
    """What comes back for these bytes, until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def head(key: str, *lines: str) -> bytes:
    fixed = ("POST /v1/sessions HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", "Content-Type: application/json")
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def test_what_is_no_request_gets_a_problem(server: Server) -> None:
    for data in (b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"):
        answer = raw(server, data)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b'"code":"bad_request"' in answer


def test_headers_have_a_size(server: Server) -> None:
    answer = raw(server, b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 100_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 "), answer[:100]
    address = raw(server, b"GET /v1/sessions/" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert address.startswith(b"HTTP/1.1 414 "), address[:100]


def test_a_body_without_length_is_cut_off_at_the_limit(server: Server, folder: Path) -> None:
    key = developers_key(folder)
    chunk = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head(key, "Transfer-Encoding: chunked"))
        sent = 0
        try:
            for _ in range(64):
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass  # the server does not read on
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
    assert answer.startswith(b"HTTP/1.1 413 ") or sent < 64  # a reset may overtake the answer
    assert httpx.get(f"{server.url}/livez", verify=NO_CERTIFICATES, trust_env=False).status_code == 200


# -- the docs


@pytest.mark.skipif(shutil.which("jq") is None or shutil.which("curl") is None, reason="the examples need curl and jq")
def test_the_lines_of_the_docs_run(server: Server, folder: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "http.md").read_text("utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 1
    environment = {"PATH": os.environ["PATH"], "URL": server.url, "KEY": developers_key(folder)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == [
        '["msg_1","user",1]',
        '["the app starts",["read the log"]]',
        '[4,"failed",null]',
        "please",
        "1",
        "CLOSED",
        "ACTIVE",
        "COMPLETED\tyou said hello",
    ]


# -- the end


def test_slow_heads_and_slow_bodies_are_given_up(impatient: Impatient) -> None:
    server, folder = impatient
    began = time.monotonic()
    assert raw(server, b"GET /livez HTTP/1.1\r\nHost: x\r\n") == b""
    answer = raw(server, head(developers_key(folder), "Content-Length: 100") + b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_too_slow"' in answer
    assert time.monotonic() - began < 10


def test_a_server_that_stops_finishes_what_is_there_and_one_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-seconds", "5") as server, client_of(server, developers_key(tmp_path)) as client:
        session = new_session(client)
        run_id = start_slow(client, session, 20)  # a second
        chat: list[httpx.Response] = []

        def talk() -> None:
            with client_of(server, developers_key(tmp_path)) as other:
                chat.append(other.post("/v1/chat", json={"message": "hi", "agent": "slow", "wait": 30}))

        talking = threading.Thread(target=talk)
        talking.start()
        while len(client.get("/v1/sessions").json()["items"]) < 2:
            time.sleep(0.02)  # until the other request is there
        with client.stream("GET", f"{session}/events", headers={"Accept": "text/event-stream"}) as stream:
            frames = frames_of(stream.iter_lines())
            while next(frames).get("event") != "run_started":
                pass
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            rest = list(frames)
        assert all(frame.get("event") != "end" for frame in rest)  # the client comes back to the next server
        assert server.process.wait(30) == 0
        assert time.monotonic() - began < 12
        talking.join(10)
        assert chat[0].status_code == 202
    with serving(tmp_path) as server, client_of(server, developers_key(tmp_path)) as client:
        run = client.get(f"{session}/runs/{run_id}").json()
        assert (run["status"], run["stop_reason"]) == ("COMPLETED", "end_turn")
        acknowledged = [client.post(f"{session}/messages", json={"content": "x"}).json()["seq"] for _ in range(20)]
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        port = server.port
    with serving(tmp_path, port=port) as server, client_of(server, developers_key(tmp_path)) as client:
        stored = client.get(f"{session}/messages", params={"order": "desc", "limit": 20}).json()["items"]
        assert [message["seq"] for message in reversed(stored)] == acknowledged


async def test_writers_with_keys_go_through_restarts_and_each_effect_is_there_once(tmp_path: Path) -> None:
    """Ten clients that repeat what was not answered, over two restarts by SIGTERM."""
    flags = ("--drain-seconds", "5", "--quiet")
    with ExitStack() as servers:
        first = servers.enter_context(serving(tmp_path, *flags, agents=("--no-agents",)))
        port, key = first.port, developers_key(tmp_path)
        limits = httpx.Limits(max_connections=20)
        async with httpx.AsyncClient(
            verify=NO_CERTIFICATES,
            base_url=first.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=10,
            trust_env=False,
            limits=limits,
        ) as client:
            sessions = [(await client.post("/v1/sessions")).json()["session_id"] for _ in range(10)]
            stopping = asyncio.Event()

            async def write(session_id: str) -> list[tuple[str, int]]:
                done: list[tuple[str, int]] = []
                while not stopping.is_set():
                    text = f"{session_id} {len(done)}"
                    while True:
                        try:
                            answer = await client.post(
                                f"/v1/sessions/{session_id}/messages",
                                json={"content": text},
                                headers={"Idempotency-Key": text.replace(" ", "-")},
                            )
                        except httpx.TransportError:
                            await asyncio.sleep(0.05)
                            continue
                        if answer.status_code == 201:
                            done.append((text, answer.json()["seq"]))
                            break
                        assert answer.status_code == 503, answer.text
                        assert "retry-after" in answer.headers
                        await asyncio.sleep(0.05)
                return done

            writing = [asyncio.create_task(write(session_id)) for session_id in sessions]
            running = first
            for _ in range(2):
                await asyncio.sleep(0.5)
                assert await asyncio.to_thread(running.stop) == 0
                starting = serving(tmp_path, *flags, agents=("--no-agents",), port=port)
                running = await asyncio.to_thread(servers.enter_context, starting)
            await asyncio.sleep(0.5)
            stopping.set()
            acknowledged = await asyncio.gather(*writing)
            for session_id, done in zip(sessions, acknowledged, strict=True):
                assert done
                page = await client.get(f"/v1/sessions/{session_id}/messages?limit=1000")
                stored = [(message["content"], message["seq"]) for message in page.json()["items"]]
                assert stored == done


def test_several_processes_on_one_port_are_one_service_and_outlive_each_other(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--workers", "2", "--idle", "500ms", agents=("--no-agents",)) as server,
        client_of(server, developers_key(tmp_path)) as client,
    ):
        first, second = workers_of(server)
        first.kill()
        first.wait(10)
        session = new_session(client)
        time.sleep(0.7)
        late = client.post(f"{session}/messages", json={"content": "late"})
        assert (late.status_code, late.json()["code"]) == (409, "session_expired")
        assert client.post(f"{session}/restore").json()["status"] == "ACTIVE"
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        second.wait(30)  # it does not stay on the port without its parent


@pytest.mark.skipif(sys.platform != "linux", reason="takes another process's descriptors away, by Linux's prlimit")
def test_a_service_that_cannot_start_another_process_serves_on_and_tries_again(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--workers", "2", agents=("--no-agents",)) as server,
        client_of(server, developers_key(tmp_path)) as client,
    ):
        parent = psutil.Process(server.process.pid)
        first = workers_of(server)[0]
        limits = parent.rlimit(psutil.RLIMIT_NOFILE)
        parent.rlimit(psutil.RLIMIT_NOFILE, (3, limits[1]))
        first.kill()
        first.wait(10)
        deadline = time.monotonic() + 30
        while "no server process can be started" not in server.log.read_text():
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.05)
        assert client.post("/v1/sessions", json={}).status_code == 201
        parent.rlimit(psutil.RLIMIT_NOFILE, limits)
        while len(workers_of(server)) < 2:
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.05)
        assert server.stop() == 0


def test_every_line_of_a_servers_log_is_json(tmp_path: Path) -> None:
    store = tmp_path / "service.db"
    with serving(tmp_path, environment={"SATCHEL_IDEL": "1h"}) as server:
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    told = {line["message"]: line["level"] for line in lines if line["logger"] in ("satchel.serve", "satchel.http")}
    assert told[f"made a new store at {store}"] == "info"
    assert told["no more requests are taken; those that are here are finished"] == "info"
    assert any(message.startswith(f"satchel serves sqlite:///{store} at http://127.0.0.1:") for message in told)
    assert told["the variable SATCHEL_IDEL is not known and is ignored; did you mean SATCHEL_IDLE?"] == "warning"


def test_the_log_is_json_and_says_nothing_of_what_was_said(server: Server, folder: Path, client: httpx.Client) -> None:
    session = new_session(client, title="a very private title")
    client.post(f"{session}/messages", json={"content": "a very private text"}, headers={"X-Request-Id": "find-me"})
    time.sleep(0.2)
    line = next(line for line in server.logged() if line.get("request_id") == "find-me")
    assert line["session_id"] == session.rpartition("/")[2]
    assert (line["route"], line["status"], line["tenant_id"]) == ("/v1/sessions/{session_id}/messages", 201, "local")
    assert "private" not in server.log.read_text()
