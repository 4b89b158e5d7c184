"""The chat engine, over real HTTP: what it shows a model, and what it makes of its answers."""

from __future__ import annotations

import json
from typing import Any

from satchel.engines import ChatTool
from tests.engines.chat_stage import KEY, ChatStage
from tests.engines.model_server import (
    asks,
    call_piece,
    chunk,
    says,
    stream,
    usage,
)


async def test_a_model_answers_and_its_tokens_are_counted(stage: ChatStage) -> None:
    run = await stage.talk("你好，帮我看看", says("你", "好", "！👋"), engine=stage.engine(instructions="You help."))
    assert (run.status, run.stop_reason, run.error) == ("COMPLETED", "end_turn", None)
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (10, 5, 15)
    answer = (await stage.messages())[-1]
    assert answer.data == {"role": "assistant", "content": "你好！👋"}
    assert (answer.status, answer.metadata) == ("complete", {"engine": "chat", "model": "m-1"})
    assert stage.model.seen[0] == {"role": "system", "content": "You help."}
    assert stage.model.seen[-1] == {"role": "user", "content": "你好，帮我看看"}
    assert stage.model.keys == [f"bearer {KEY}"]


async def test_tools_are_called_with_the_models_labels_and_it_goes_on_with_their_results(stage: ChatStage) -> None:
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    async def greet(name: str) -> dict[str, str]:
        return {"said": f"你好 {name}"}

    engine = stage.engine(tools=[add, greet])
    run = await stage.talk(
        "go",
        asks(("c1", "add", '{"a": 2, "b": 40}'), ("c2", "greet", '{"name": "阿达"}'), text="I look."),
        says("done"),
        engine=engine,
    )
    assert (run.status, run.steps, run.usage.total_tokens) == ("COMPLETED", 4, 42)
    bodies = await stage.bodies()
    assert [body["role"] for body in bodies] == ["user", "assistant", "tool", "tool", "assistant"]
    assert bodies[1]["content"] == "I look."
    results = {body["tool_call_id"]: body["content"] for body in bodies[2:4]}
    assert results == {"c1": "42", "c2": '{"said":"你好 阿达"}'}
    history = (await stage.sessions.tool_history(stage.session_id)).items
    assert {(call.tool_call_id, call.tool, call.ok) for call in history} == {("c1", "add", True), ("c2", "greet", True)}
    shown = [message["role"] for message in stage.model.seen]
    assert shown[-4:] == ["user", "assistant", "tool", "tool"]
    assert [one["tool_call_id"] for one in stage.model.seen[-2:]] == ["c1", "c2"]
    tool = stage.model.requests[0]["tools"][0]["function"]
    assert (tool["name"], tool["description"]) == ("add", "Adds.")
    assert tool["parameters"]["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}}
    assert tool["parameters"]["required"] == ["a"]


async def test_characters_are_whole_wherever_the_stream_is_cut(stage: ChatStage) -> None:
    text = "修复启动失败 👨‍👩‍👧 naïve"
    whole = json.dumps(chunk({"content": text}), ensure_ascii=False).encode()
    split = [f"data: {json.dumps(chunk({'role': 'assistant'}))}\n\ndata: ".encode()]
    split += [whole[index : index + 1] for index in range(len(whole))] + [b"\n\n"]
    halves = [chunk({"content": "\ud83d"}), chunk({"content": "\udc4b!"}), chunk({"content": "half \ud83d"})]
    await stage.talk("go", stream(*split, *halves, chunk(None, "stop")))
    assert (await stage.bodies())[-1]["content"] == text + "👋!half \ufffd"


async def test_pieces_of_tool_calls_are_put_together_however_they_come(stage: ChatStage) -> None:
    seen: list[Any] = []

    def note(**given: Any) -> str:
        seen.append(given)
        return "noted"

    tool = ChatTool(note, parameters={"type": "object"})
    pieces = [
        call_piece(0, id="a", name="no", arguments='{"x":'),
        call_piece(1, id="b", name="note", arguments=""),
        call_piece(0, id="", name="te", arguments=' "你'),
        call_piece(1, name="note", arguments='{"y": 1}'),  # the name again
        call_piece(0, arguments='好"}'),
        call_piece(1, id="c", name="note", arguments='{"z": 2}'),  # an index used again
        call_piece(None, id="d", name="note", arguments={"w": 3}),  # no index, and arguments that are no text
        call_piece(None, id="d", name="note", arguments=None),
        call_piece(5, id="d", name="note", arguments=""),  # a label given twice, and no arguments at all
        {"tool_calls": [None, {"index": 7, "id": 5, "function": "note"}], "content": None},
    ]
    reply = stream(*(chunk(piece) for piece in pieces), chunk(None, "tool_calls"))
    run = await stage.talk("go", reply, says("done"), engine=stage.engine(tools=[tool]))
    assert run.status == "COMPLETED"
    assert seen[:5] == [{"x": "你好"}, {"y": 1}, {"z": 2}, {"w": 3}, {}]
    message = (await stage.bodies())[1]
    assert message["content"] is None
    labels = [call["id"] for call in message["tool_calls"]]
    assert labels[:4] == ["a", "b", "c", "d"]
    assert len(set(labels)) == len(labels) == 6
    answered = [body["tool_call_id"] for body in await stage.bodies() if body["role"] == "tool"]
    assert sorted(answered) == sorted(labels)


async def test_what_is_odd_in_a_stream_is_passed_over(stage: ChatStage) -> None:
    odd = [
        b": a comment\n\n",
        {"choices": None},
        {"choices": [None, "x"]},
        {"object": "ping"},
        b"data: [1, 2]\n\n",
        chunk({"content": "not this choice"}, index=1),
        chunk("no delta"),
        chunk({"content": 5, "surprise": {"a": 1}}),
        chunk({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "an"}, None]}),
        chunk({"content": "swer"}, index=None),
        chunk(None, "stop"),
        chunk(None, None),
        {"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -1}},
    ]
    run = await stage.talk("go", stream(*odd))
    assert run.status == "COMPLETED"
    assert (await stage.bodies())[-1]["content"] == "answer"


async def test_tokens_that_nobody_counts_are_estimated_and_say_so(stage: ChatStage) -> None:
    run = await stage.talk("one two three " * 40, says("four five six " * 40, tokens=None))
    (step,) = await stage.steps()
    assert step["name"] == "m-1 (tokens estimated)"
    assert 100 <= run.usage.output_tokens <= 150
    assert run.usage.input_tokens >= 100


async def test_of_a_count_in_every_chunk_the_last_one_holds(stage: ChatStage) -> None:
    counted = [{**chunk({"content": "x"}), "usage": usage(10, n)["usage"]} for n in range(1, 4)]
    run = await stage.talk("go", stream(*counted, chunk(None, "stop")))
    assert (run.usage.input_tokens, run.usage.output_tokens) == (10, 3)


async def test_an_empty_answer_is_an_answer(stage: ChatStage) -> None:
    run = await stage.talk("go", says(""))
    assert run.status == "COMPLETED"
    assert (await stage.bodies())[-1] == {"role": "assistant", "content": ""}


async def test_thoughts_are_kept_and_sent_back_only_while_the_question_lasts(stage: ChatStage) -> None:
    def look() -> str:
        return "seen"

    engine = stage.engine(tools=[look])
    thinking = stream(
        chunk({"reasoning_content": "I should "}),
        chunk({"reasoning_content": "look."}),
        chunk(call_piece(0, id="c", name="look", arguments="{}")),
        chunk(None, "tool_calls"),
    )
    await stage.talk("go", thinking, says("done"), engine=engine)
    assert (await stage.bodies())[1]["reasoning_content"] == "I should look."
    assert stage.model.seen[-2]["reasoning_content"] == "I should look."
    await stage.talk("and now?", says("nothing"), engine=engine)
    assert not any("reasoning_content" in message for message in stage.model.seen)


async def test_a_refusal_is_what_the_model_says(stage: ChatStage) -> None:
    run = await stage.talk("go", stream(chunk({"refusal": "I will not."}), chunk(None, "stop")))
    assert run.status == "COMPLETED"
    assert (await stage.bodies())[-1]["content"] == "I will not."


async def test_an_answer_that_met_the_length_limit_completes_and_says_so(stage: ChatStage) -> None:
    run = await stage.talk("go", says("and so on and", finish="length"))
    assert (run.status, run.stop_reason) == ("COMPLETED", "length")


async def test_a_message_larger_than_the_window_is_shown_in_part(stage: ChatStage) -> None:
    run = await stage.talk("甲" * 3000 + "?", says("what?"), engine=stage.engine(max_tokens=1000))
    assert run.status == "COMPLETED"
    asked = stage.model.seen[-1]
    assert asked["role"] == "user"
    assert 300 < len(asked["content"]) < 1500
    assert asked["content"].endswith("?")


async def test_a_run_without_a_message_is_given_its_goal_and_not_as_an_instruction(stage: ChatStage) -> None:
    def look() -> str:
        return "seen"

    engine = stage.engine(tools=[look], instructions="You help.")
    await stage.talk(None, asks(("a", "look", "{}")), says("done"), goal="看看启动日志", engine=engine)
    first = stage.model.requests[0]["messages"]
    assert first[-1] == {"role": "user", "content": "看看启动日志"}
    second = [(message["role"], message.get("content")) for message in stage.model.seen]
    assert second[-3:] == [("user", "看看启动日志"), ("assistant", None), ("tool", "seen")]


async def test_keys_that_only_we_know_are_not_sent(stage: ChatStage) -> None:
    said = {"role": "user", "content": [{"type": "text", "text": "看"}], "name": "a b", "price": 1.5}
    await stage.talk(said, says("ok"))
    assert stage.model.seen[-1] == {"role": "user", "content": [{"type": "text", "text": "看"}]}


async def test_options_go_into_the_request(stage: ChatStage) -> None:
    await stage.talk("go", says("ok"), engine=stage.engine(options={"temperature": 0, "max_completion_tokens": 9}))
    request = stage.model.requests[0]
    assert (request["temperature"], request["max_completion_tokens"], request["model"]) == (0, 9, "m-1")
    assert "tools" not in request
