"""What a person types as the answer to a question."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.cli.chat.answers import hint, read_answer

APPROVAL: dict[str, Any] = {"type": "object", "properties": {"decision": {"enum": ["approve", "deny", "edit"]}}}
COLOURS = {"enum": ["红", "green", 3, None]}


@pytest.mark.parametrize(
    ("text", "schema", "answer"),
    [
        (" 随便什么 ", None, "随便什么"),
        ("17", {"type": "string"}, "17"),
        ("17", {"type": "integer"}, 17),
        ("1.5", {"type": "number"}, 1.5),
        ("是", {"type": "boolean"}, True),
        ("No", {"type": "boolean"}, False),
        ("红", COLOURS, "红"),
        ("2", COLOURS, "green"),
        ("3", COLOURS, 3),  # the value itself before its number
        ("4", COLOURS, None),
        ('"green"', COLOURS, "green"),  # as JSON writes it
        ('{"decision": "deny", "reason": "no"}', APPROVAL, {"decision": "deny", "reason": "no"}),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("[1, 2]", {"items": {}}, [1, 2]),
        ('{"decision": [1]}', {"properties": {"decision": {"enum": [[1], {"a": 2}]}}}, {"decision": [1]}),
        ("y", APPROVAL, {"decision": "approve"}),
        ("n", APPROVAL, {"decision": "deny"}),
        ("拒绝 太贵了", APPROVAL, {"decision": "deny", "reason": "太贵了"}),
        ('e {"cents": 5}', APPROVAL, {"decision": "edit", "arguments": {"cents": 5}}),
    ],
)
def test_words_become_the_value_that_is_meant(text: str, schema: Any, answer: Any) -> None:
    assert read_answer(text, schema) == answer
    assert type(read_answer(text, schema)) is type(answer)


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("perhaps", {"type": "boolean"}),
        ("many", {"type": "integer"}),
        ("blue", COLOURS),
        ("5", COLOURS),
        ("0", COLOURS),
        ("{", {"type": "object"}),
        ("[" * 100_000, {"type": "array"}),
        ("maybe", APPROVAL),
        ("y but", APPROVAL),
        ("e", APPROVAL),
        ("e {", APPROVAL),
        ("", APPROVAL),
    ],
)
def test_what_means_nothing_is_asked_for_again(text: str, schema: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read_answer(text, schema)


def test_a_hint_says_what_may_be_typed() -> None:
    assert hint(None) == hint({"type": "string"}) == ""
    assert hint({"type": "boolean"}) == "y or n"
    assert hint({"type": "integer"}) == "a number"
    assert hint({"type": "object"}) == "JSON"
    assert hint({"minLength": 3}) == "JSON"
    assert hint(COLOURS) == "1: 红   2: green   3: 3   4: null"
    assert hint(APPROVAL).startswith("y: yes")
