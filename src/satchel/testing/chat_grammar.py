"""What a chat API accepts: a strict reading of the messages of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def assert_accepted(messages: Sequence[dict[str, Any]]) -> None:
    """Each message has a role and a content of its role; each assistant's calls have labels of their own, names, and arguments
    that are text; directly behind them stands one result each, in the order of the calls, and no result elsewhere."""
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        assert message["role"] in ("system", "developer", "user", "assistant"), f"{message['role']} at {index - 1}"
        calls = message.get("tool_calls")
        if calls is None:
            assert "tool_calls" not in message
            _assert_content(message)
            continue
        assert message["role"] == "assistant" or not calls, "somebody else calls tools"
        if message["role"] != "assistant":
            continue
        assert calls, "a list of calls is not empty"
        if message.get("content") is not None:
            _assert_content(message)
        for call in calls:
            _assert_call(call)
        labels = [call["id"] for call in calls]
        assert len(set(labels)) == len(labels), f"labels twice: {labels}"
        results = messages[index : index + len(labels)]
        assert [(one["role"], one.get("tool_call_id")) for one in results] == [("tool", label) for label in labels]
        for result in results:
            _assert_content(result)
        index += len(labels)


def _assert_content(message: dict[str, Any]) -> None:
    content = message.get("content")
    if isinstance(content, list):
        assert content, "a list of parts is not empty"
        assert all(isinstance(part, dict) for part in content)
    else:
        assert isinstance(content, str), f"a content that is {content!r}"


def _assert_call(call: dict[str, Any]) -> None:
    assert isinstance(call["id"], str)
    assert call["id"]
    if call["type"] == "custom":
        assert isinstance(call["custom"], dict)
        return
    assert call["type"] == "function"
    assert isinstance(call["function"]["name"], str)
    assert call["function"]["name"]
    assert isinstance(call["function"]["arguments"], str)
