"""A decimal does not change on the command line: what --json and export print is what was given, and so is what is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from satchel.cli.chat.answers import read_answer
from tests.cli.shell import STORE, Cli
from tests.http.door import open_door
from tests.robust.numbers import Filling, shown

NUMBERS = ("1.10", "0.1000000000000000055511151231257827021181", "-0", "1E5", "1e-400")


@pytest.mark.parametrize("number", NUMBERS)
def test_every_command_that_prints_json_shows_it_as_it_was_given(cli: Cli, number: str, tmp_path: Path) -> None:
    async def fill() -> Filling:
        async with open_door(STORE) as door:
            filling = Filling(door, number)
            await filling.fill()
            return filling

    filling = asyncio.run(fill())
    session_id = filling.session[13:]
    seen = {}
    for command in (
        ["sessions", "show", session_id, "--json"],
        ["sessions", "list", "--json"],
        ["sessions", "export", session_id],
        ["tail", session_id, "--no-follow", "--json"],
        ["runs", "list", session_id, "--json"],
        ["runs", "show", session_id, "--json"],
        ["runs", "answer", session_id, f'{{"place_typed":{number}}}', "--json"],
        ["sessions", "close", session_id, "--json"],
    ):
        answer = cli(*command, "--user", "ada")
        assert answer.code == 0, (command, answer.err)
        found = shown(answer.out)
        assert found, command
        assert {given for _, given in found} == {number}, command
        seen[" ".join(command[:2])] = {place for place, _ in found}
    places = set(filling.places)
    assert seen["sessions show"] == places - {"place_answer", "place_replaced"}  # these stand in the log
    exported = cli("sessions", "export", session_id, "--user", "ada").out
    assert {place for place, _ in shown(exported)} == places | {"place_typed"}
    copied = cli("copy", "--from", STORE, "--to", f"sqlite:///{tmp_path}/other.db")
    assert copied.code == 0, copied.err
    again = cli("sessions", "export", session_id, "--user", "ada", "--store", f"sqlite:///{tmp_path}/other.db").out
    assert shown(again) == shown(exported)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_answer_keeps_the_numbers_that_were_typed(number: str) -> None:
    decision = {"properties": {"decision": {"enum": ["approve", "deny", "edit"]}}}
    arguments = f'{{"n":{number}}}'
    whole = f'{{"decision":"edit","arguments":{arguments}}}'
    for text, schema, sent in (
        (number, {"type": "number"}, number),
        (f" {arguments} ", {"type": "object"}, arguments),
        (whole, decision, whole),
        (f"e {arguments}", decision, whole),
    ):
        assert bytes(read_answer(text, schema)).decode() == sent
