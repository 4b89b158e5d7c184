"""JSON Schemas of questions, where the library is missing, or the schema is a strange one."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Any

import msgspec
import pytest

from satchel import Attempt, ExtraMissing, InvalidInput, Principal, RunManager, SessionManager
from satchel.opened import OpenStore
from satchel.schemas import check_schema, refusal, refusal_of
from satchel.stores.memory import MemoryStore


async def test_without_the_library_a_schema_is_refused_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenStore(MemoryStore()) as store:
        agent = Principal.agent("shop", tenant_id="acme", acting_for="ada")
        sessions, runs = SessionManager(store, agent), RunManager(store, agent)
        sid = (await sessions.create_session()).session_id
        run = await runs.add_run(sid, start=True)
        attempt = Attempt(run.run_id, run.attempt)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "jsonschema_rs", None)
            with pytest.raises(ExtraMissing, match="pip install jsonschema-rs ") as met:
                await runs.ask_question(sid, attempt, "size", "?", schema={"type": "integer"})
            assert (met.value.extra, met.value.code) == ("questions", "extra_missing")
        await runs.ask_question(sid, attempt, "size", "?", schema={"type": "integer"})
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "jsonschema_rs", None)
            with pytest.raises(ExtraMissing):
                await runs.answer_run(sid, run.run_id, 5)
            assert isinstance(await refusal_of(b'{"$ref":"#/$defs/a"}', b"5", field="answer"), ExtraMissing)
        assert (await runs.answer_run(sid, run.run_id, 5)).status == "READY"


def test_nothing_that_a_schema_names_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody went out")

    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    for reference in ("https://example.com/a.json", "//example.com/a", "other.json", "file:///etc/passwd"):
        for schema in ({"$ref": reference}, {"properties": {"x": {"$dynamicRef": reference}}}):
            with pytest.raises(InvalidInput, match="nothing is fetched"):
                check_schema(schema, field="schema")
        # Also if one was stored in another way.
        assert isinstance(refusal({"$ref": reference}, 1, field="answer"), InvalidInput)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"$ref": "#/$defs/size", "$defs": {"size": {"type": "integer"}}}, 1, "1"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}, ["a", 1], [1]),
        (
            {"$defs": {"list": {"type": ["null", "array"], "items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"},
            [[]],
            [1],
        ),
        ({"pattern": "^修"}, "修复", "x"),
        ({}, None, ...),
        ({"not": {}}, ..., None),
    ],
)
def test_a_schema_decides(schema: dict[str, Any], fits: Any, does_not: Any) -> None:
    check_schema(schema, field="schema")
    if fits is not ...:
        assert refusal(schema, fits, field="answer") is None
    if does_not is not ...:
        assert isinstance(refusal(schema, does_not, field="answer"), InvalidInput)


def test_no_pattern_keeps_the_process_busy() -> None:
    """Exponential for a regular expression that goes back; linear here, so that this test ends at all."""
    schema = {"type": "string", "pattern": "^(a+)+$", "maxLength": 100_000}
    check_schema(schema, field="schema")
    assert refusal(schema, "a" * 50_000, field="answer") is None
    assert isinstance(refusal(schema, "a" * 50_000 + "!", field="answer"), InvalidInput)
    for backwards in ("(?=a)b", "(?<!a)b", r"(a)\1"):
        with pytest.raises(InvalidInput, match="without look-around and back references"):
            check_schema({"properties": {"name": {"pattern": backwards}}}, field="schema")


def branching(steps: int) -> dict[str, Any]:
    """Each step asks twice for the next: small to write, and twice the work with each step."""
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
    return {"$defs": {**twice, f"d{steps}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("small", [{"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, {"uniqueItems": True}])
async def test_what_may_take_long_is_decided_apart_and_alike(small: dict[str, Any]) -> None:
    schema = msgspec.json.encode(small)
    for value in (b"5", b'"x"', b"[1,1]", b"[1,2]"):
        apart = await refusal_of(schema, value, field="answer")
        here = refusal(small, msgspec.json.decode(value), field="answer")
        assert str(apart) == str(here)


async def test_a_schema_whose_work_has_no_end_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.schemas.SECONDS", 1.0)
    longest = 0.0
    deciding = asyncio.create_task(refusal_of(msgspec.json.encode(branching(40)), b'"x"', field="answer"))
    while not deciding.done():
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        longest = max(longest, time.perf_counter() - began)
    refused = await deciding
    assert isinstance(refused, InvalidInput)
    assert "seconds" in str(refused)
    assert longest < 1.0  # the loop went on


def test_a_refusal_says_what_is_wanted_and_not_what_was_given() -> None:
    wrong = refusal({"properties": {"size": {"type": "integer"}}}, {"size": "secret-17"}, field="answer")
    assert isinstance(wrong, InvalidInput)
    assert wrong.pointer == "/size"
    assert "integer" in str(wrong)
    assert "secret" not in str(wrong)


def test_a_refusal_is_short_whatever_the_answer_is() -> None:
    wrong = refusal({"type": "integer"}, "x" * 60_000, field="answer")
    assert wrong is not None
    assert len(str(wrong)) < 600


async def test_answers_that_take_long_wait_for_each_other_and_keep_nobody_else_from_a_thread() -> None:
    slow = [
        asyncio.create_task(refusal_of(b'{"$defs":{"a":{}},"$ref":"#/$defs/a"}', b"1", field="answer"))
        for _ in range(40)
    ]
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(asyncio.to_thread(int), 5)
    assert asyncio.get_running_loop().time() - began < 0.5
    assert not any(one.done() for one in slow[4:])
    for one in slow:
        one.cancel()
    await asyncio.wait(slow)
