"""A decimal does not change: every place that takes JSON, every number that a double spoils, every door that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import satchel
from satchel import RunManager, SessionManager
from satchel.domain.ids import SessionRef
from satchel.domain.tool_call import hash_arguments
from satchel.testing.stage import ADAS_AGENT
from satchel.transfer.copying import copy_session, prove
from tests.client.served import key_of, served
from tests.http.door import Door, door_over, open_door
from tests.robust.numbers import NUMBERS, Filling, shown

every_number = pytest.mark.parametrize("number", NUMBERS)

PAGES = ("", "/messages", "/tool-history", "/runs", "/events", "/working-memory", "/context?max_tokens=100000")


async def filled(door: Door, number: str) -> Filling:
    filling = Filling(door, number)
    await filling.fill()
    return filling


def check(filling: Filling, *texts: bytes) -> set[str]:
    """Whatever shows a number shows it as it was given. The places that were seen."""
    seen = set()
    for text in texts:
        for place, number in shown(text):
            assert number == filling.number, f"{place} shows {number} in {text.decode()}"
            seen.add(place)
    return seen


async def over_http(door: Door, filling: Filling) -> set[str]:
    seen = set()
    for page in PAGES:
        answer = await door("GET", filling.session + page, who="adas agent")
        assert answer.status_code == 200, answer.text
        seen |= check(filling, answer.content)
        assert page == "" or shown(answer.content), page
    return seen


@every_number
async def test_every_http_door_shows_it_as_it_was_given(number: str) -> None:
    async with open_door() as door:
        filling = await filled(door, number)
        assert check(filling, *filling.answers) == set(filling.places)
        assert await over_http(door, filling) == set(filling.places)
        seen = await door("GET", f"{filling.session}/working-memory?run_id={filling.run[6:]}", who="adas agent")
        assert check(filling, seen.content) == {"place_layer"}
        one = await door("GET", filling.session + filling.run, who="adas agent")
        assert check(filling, one.content) == {"place_input", "place_run_metadata", "place_schema", "place_layer"}
        listed = await door("GET", "/v1/sessions", who="adas agent")
        assert check(filling, listed.content) == {"place_created", "place_merged"}
        await filling.end()
        assert check(filling, *filling.answers) == set(filling.places)
        memory = await door("GET", f"{filling.session}/working-memory", who="adas agent")
        assert check(filling, memory.content) == {"place_layer"}
        assert await over_http(door, filling) == set(filling.places)
        events = f"{filling.session}/events?run_id={filling.run[6:]}"
        streamed = await door("GET", events, who="adas agent", headers={"Accept": "text/event-stream"})
        assert check(filling, streamed.content) > {"place_spoken", "place_answer", "place_layer", "place_run_metadata"}


@every_number
async def test_the_client_shows_it_as_the_server_does(number: str) -> None:
    async with open_door() as door:
        filling = await filled(door, number)
        sid, run_id = filling.session[13:], filling.run[6:]
        async with served(door.store) as url, satchel.connect(url, key_of(ADAS_AGENT)) as connection:
            far, far_runs = connection.sessions, connection.runs
            near, near_runs = SessionManager(door.store, ADAS_AGENT), RunManager(door.store, ADAS_AGENT)
            texts = []
            for sessions, runs in ((near, near_runs), (far, far_runs)):
                texts.append(
                    [
                        (await sessions.get_session(sid)).to_json(),
                        (await sessions.get_working_memory(sid)).to_json(),
                        (await sessions.get_working_memory(sid, run_id=run_id)).to_json(),
                        (await sessions.context(sid, max_tokens=100_000)).to_json(),
                        (await runs.get_run(sid, run_id)).to_json(),
                        *[message.to_json() for message in (await sessions.messages(sid)).items],
                        *[call.to_json() for call in (await sessions.tool_history(sid)).items],
                    ]
                )
            assert texts[0] == texts[1]
            assert len(check(filling, *texts[1])) > 15
            memory = await far.get_working_memory(sid)
            again = await far.replace_working_memory(sid, memory, expected_version=memory.version)
            assert check(filling, again.to_json()) == {"place_patched"}
            assert again.notes == (await near.get_working_memory(sid)).notes


@every_number
async def test_import_fork_and_copy_keep_it(number: str, tmp_path: Path) -> None:
    async with open_door() as door, satchel.open(f"sqlite:///{tmp_path}/other.db") as target:
        filling = await filled(door, number)
        await filling.end()
        sid = filling.session[13:]
        near = SessionManager(door.store, ADAS_AGENT)
        exported = b"".join([piece async for piece in near.export_sessions([sid])])
        assert check(filling, exported) >= set(filling.places) - {"place_schema", "place_answer"}
        seen = await over_http(door, filling)
        fork = await near.fork_session(sid)
        filling.session = f"/v1/sessions/{fork.session_id}"
        assert await over_http(door, filling) == seen
        (imported,) = [one async for one in near.import_sessions([exported])]
        filling.session = f"/v1/sessions/{imported.session_id}"
        assert await over_http(door, filling) == seen
        copied = await copy_session(door.store, target, SessionRef("acme", sid))
        assert (await prove(target.store, copied)).holds
        async with door_over(target) as there:
            filling.session = f"/v1/sessions/{sid}"
            assert await over_http(there, filling) == seen


@pytest.mark.parametrize("number", ["1e400", "-1E+999999", "1" + "0" * 400 + ".5"])
async def test_what_no_double_can_hold_is_refused_at_every_place_and_nothing_is_stored(number: str) -> None:
    async with open_door() as door:
        session = await door.session("adas agent")
        await door("PATCH", session, who="adas agent", json={"metadata": {"a": 1}})
        before = (await door("GET", session, who="adas agent")).content
        filling = Filling(door, number)
        for method, path, body in filling.requests():
            refused = await door(method, session + path, who="adas agent", content=body.encode())
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), body
        assert (await door("GET", session, who="adas agent")).content == before
        assert len(filling.places) > 10


async def call_with(door: Door, session: str, arguments: str) -> int | None:
    body = f'{{"tool":"t","arguments":{arguments}}}'.encode()
    made = await door("POST", f"{session}/tool-history", who="adas agent", content=body)
    repeat: int | None = made.json()["repeat_of"]
    return repeat


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0", "1e-400"),
        ("1e-400", "1e-401"),
        ("1e-400", "-1e-400"),
        ("0.1", "0.1000000000000000055511151231257827021181"),
        ("1e30", "1000000000000000019884624838656"),
        ("12345678901234567890.5", "12345678901234567890.25"),
        ("[1e-400]", '["1e-400"]'),
        ("1e-" + "9" * 5000, "0"),
    ],
)
async def test_calls_with_different_numbers_are_no_repeats(first: str, second: str) -> None:
    async with open_door() as door:
        for form in ("{}", '{{"n":{}}}'):
            session = await door.session("adas agent")
            first_text, second_text = (form.format(number) for number in (first, second))
            assert await call_with(door, session, first_text) is None
            assert await call_with(door, session, second_text) is None
            assert await call_with(door, session, f" {first_text}") == 1
            # A model gives its arguments as JSON text.
            if form != "{}":
                assert await call_with(door, session, json.dumps(second_text)) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1.10", "1.1"),
        ("1", "1.0"),
        ("-0", "0.0"),
        ("1E5", "100000"),
        ("1e30", "1" + "0" * 30),
        ("1e-400", "0.1e-399"),
        ("10e-401", "1E-00400"),
        ("123456789012345678901.50", "12345678901234567890150e-2"),
    ],
)
async def test_a_call_with_the_same_number_in_another_spelling_is_a_repeat(first: str, second: str) -> None:
    async with open_door() as door:
        session = await door.session("adas agent")
        assert await call_with(door, session, f'{{"n":[{first}],"m":1.5}}') is None
        assert await call_with(door, session, f'{{"m":15e-1,"n":[{second}]}}') == 1


def test_hashes_of_ordinary_arguments_are_those_that_are_stored() -> None:
    stored = {
        b'{"path":"app.py"}': "b1e5d31d22a9aa65af20adfae258893b",
        b'{"b":[1,2.5,-0.0,1e3,true,null],"a":"\xe4\xbf\xae"}': "180c0e182dcdf3397b0567075292d501",
        b'{"n":9007199254740993,"m":9223372036854775809,"x":1e-7,"y":123456.789}': "2f9949f71298e2949de37bdcdd3edc17",
    }
    for arguments, known in stored.items():
        assert hash_arguments("t", msgspec.Raw(arguments)).hex() == known
        assert hash_arguments("t", msgspec.json.decode(arguments)) == hash_arguments("t", msgspec.Raw(arguments))
