"""Promises of the scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import satchel
from satchel import Message, Principal, Run, RunManager, Session, SessionManager
from satchel.engine import Engine, execute
from satchel.engines import Call, Intent, Keep, Recall, Remember, Say, Script, ScriptedEngine, Text, ToolFailed
from satchel.engines.script import Language, language_of, same

ADA = Principal.agent("tester", tenant_id="acme", acting_for="ada")

FOUND = Text("已找到 {count} 只猫", "Found {count} cats")
FED = Text("喂了 {count} 只猫", "Fed {count} cats")
FEED = Text("喂猫", "Feed the cats")
REST = Text("休息", "Rest")

CATS = Script(
    name="cats",
    intents=(
        Intent(
            name="count",
            example=Text("数猫", "Count the cats"),
            says=("数猫", "count the cats"),
            begins=Text("照顾所有的猫", "Look after all cats"),
            steps=(
                Call(
                    tool="look",
                    arguments={"where": "garden"},
                    because=Text("我去看看。", "I go and look."),
                    keep={"count": Keep("cats")},
                ),
                Remember(
                    append={"completed": (FOUND,), "important_files": (same("cats.txt"),)}, set={"next_action": FEED}
                ),
                Say(Text("有 {count} 只。", "There are {count}.")),
            ),
        ),
        Intent(
            name="feed",
            example=FEED,
            says=("喂猫", "feed the cats"),
            follows=FEED,
            steps=(
                Recall(
                    name="count",
                    field="completed",
                    pattern=r"(?:已找到|Found) (\d+)",
                    what=Text("猫的数量", "how many cats there are"),
                ),
                Call(
                    tool="look",
                    arguments={"where": "garden"},
                    because=Text("我再去看看。", "I look again."),
                    keep={"kind": Keep("kind")},
                    known_by=FOUND,
                ),
                Call(
                    tool="feed",
                    arguments={"cats": "{count}", "food": "{kind} food"},
                    because=Text("喂 {count} 只。", "I feed {count}."),
                    expect={"fed": True},
                ),
                Remember(append={"completed": (FED,)}, set={"next_action": REST}),
                Say(Text("都喂好了。", "All are fed.")),
            ),
        ),
    ),
)

COUNT = {"zh": "数猫", "en": "Count the cats"}
GO_ON = {"zh": "继续刚才的任务", "en": "Go on with what we were doing"}
RETRY = {"zh": "重做", "en": "Retry it"}
LANGUAGES: tuple[Language, ...] = ("zh", "en")

MEMORY: dict[Language, dict[str, Any]] = {
    "zh": {
        "goal": "照顾所有的猫",
        "plan": ["先数后喂"],
        "completed": ["已找到入口", "已找到 3 只猫"],
        "errors": ["门锁着"],
        "important_files": ["cats.txt"],
        "next_action": "休息",
    },
    "en": {
        "goal": "Look after all cats",
        "plan": ["count, then feed"],
        "completed": ["Found the door", "Found 3 cats"],
        "errors": ["the gate is locked"],
        "important_files": ["cats.txt"],
        "next_action": "Rest",
    },
}


class CatTools:
    """Tools that note what they did, and do what a test wants."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.fed = True
        self.fails_with: Exception | None = None

    async def look(self, **arguments: Any) -> dict[str, Any]:
        self.done.append(("look", arguments))
        if self.fails_with is not None:
            raise self.fails_with
        return {"cats": 3, "kind": "tabby"}

    async def feed(self, **arguments: Any) -> dict[str, Any]:
        self.done.append(("feed", arguments))
        return {"fed": self.fed}


class Stand:
    """One session, an engine, and what they make of each other."""

    def __init__(self, sessions: SessionManager, runs: RunManager, session_id: str) -> None:
        self.sessions = sessions
        self.runs = runs
        self.session_id = session_id
        self.tools = CatTools()
        self.engine = self.engine_of(0)

    async def another(self) -> Stand:
        """The same in a fresh session."""
        return Stand(self.sessions, self.runs, (await self.sessions.create_session()).session_id)

    def engine_of(self, seed: int) -> ScriptedEngine:
        return ScriptedEngine(CATS, {"look": self.tools.look, "feed": self.tools.feed}, seed=seed)

    async def say(self, text: str) -> str:
        """The last thing that the agent says to it."""
        async with self.sessions.run(self.session_id, goal=text, input=text, agent=self.engine.name) as run:
            await execute(self.engine, run)
        return str((await self.messages())[-1].content)

    async def messages(self) -> list[Message]:
        return list(await self.sessions.messages(self.session_id))

    async def read(self) -> Session:
        return await self.sessions.get_session(self.session_id)

    async def last_run(self) -> Run:
        return (await self.read()).runs[-1]

    async def remember(self, memory: dict[str, Any]) -> None:
        version = (await self.sessions.get_working_memory(self.session_id)).version
        await self.sessions.replace_working_memory(self.session_id, memory, expected_version=version)

    async def lose_a_call(self, tool: str, arguments: dict[str, Any]) -> None:
        """A call whose process went away in the middle."""
        await self.sessions.start_tool_call(self.session_id, tool, arguments)
        await self.sessions.close_session(self.session_id)
        await self.sessions.restore_session(self.session_id)


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with satchel.open("memory:") as store:
        sessions = SessionManager(store, ADA)
        yield Stand(sessions, RunManager(store, ADA), (await sessions.create_session()).session_id)


# What it knows


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_answer_quotes_goal_last_completed_and_next_action_from_memory(
    stand: Stand, language: Language
) -> None:
    await stand.remember(MEMORY[language])
    answer = await stand.say(GO_ON[language])
    memory = MEMORY[language]
    assert memory["goal"] in answer
    assert memory["completed"][-1] in answer
    assert memory["next_action"] in answer


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("field", ["goal", "plan", "completed", "errors", "important_files", "next_action"])
async def test_each_lost_field_of_memory_changes_the_answer(stand: Stand, language: Language, field: str) -> None:
    whole = MEMORY[language]
    await stand.remember(whole)
    before = await stand.say(GO_ON[language])
    other = await stand.another()
    await other.remember({name: value for name, value in whole.items() if name != field})
    after = await other.say(GO_ON[language])
    lost = whole[field] if isinstance(whole[field], str) else whole[field][-1]
    assert lost in before
    assert lost not in after


@pytest.mark.parametrize("language", LANGUAGES)
async def test_without_memory_it_does_not_know_what_to_continue_and_does_nothing(
    stand: Stand, language: Language
) -> None:
    answer = await stand.say(GO_ON[language])
    assert ("不知道要继续什么" if language == "zh" else "do not know what to continue") in answer
    assert stand.tools.done == []
    assert (await stand.last_run()).stop_reason == "nothing_to_continue"


@pytest.mark.parametrize("said", ["喂猫", "Feed the cats"])
async def test_a_request_that_builds_on_memory_is_not_carried_out_without_it(stand: Stand, said: str) -> None:
    answer = await stand.say(said)
    assert ("猫的数量" if language_of(said) == "zh" else "how many cats there are") in answer
    assert stand.tools.done == []


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_next_action_in_memory_is_what_it_goes_on_with(stand: Stand, language: Language) -> None:
    await stand.say(COUNT[language])
    answer = await stand.say(GO_ON[language])
    assert stand.tools.done == [("look", {"where": "garden"}), ("feed", {"cats": "3", "food": "tabby food"})]
    assert FED.fill(language, {"count": "3"}) in answer
    memory = (await stand.read()).working_memory
    assert memory is not None
    assert memory.completed == (FOUND.fill(language, {"count": "3"}), FED.fill(language, {"count": "3"}))
    assert memory.next_action == REST.fill(language, {})


async def test_memory_of_one_language_is_gone_on_with_in_the_other(stand: Stand) -> None:
    await stand.say(COUNT["zh"])
    await stand.say(GO_ON["en"])
    first = next(text for text in map(str, [m.content for m in await stand.messages()]) if "Last completed" in text)
    assert "已找到 3 只猫" in first
    assert [name for name, _ in stand.tools.done] == ["look", "feed"]


async def test_the_same_task_asked_for_again_goes_on_and_another_begins_anew(stand: Stand) -> None:
    await stand.remember({"goal": "照顾所有的猫", "completed": ["已找到 3 只猫"], "next_action": "休息"})
    assert "已找到 3 只猫" in await stand.say(COUNT["zh"])
    assert stand.tools.done == []
    await stand.remember({"goal": "学法语", "completed": ["第一课"], "errors": ["发音"]})
    await stand.say(COUNT["zh"])
    memory = (await stand.read()).working_memory
    assert memory is not None
    assert (memory.goal, memory.completed, memory.errors) == ("照顾所有的猫", ("已找到 3 只猫",), ())


async def test_what_is_not_in_the_script_is_said_to_be_so(stand: Stand) -> None:
    answer = await stand.say("Sing a song")
    assert "Count the cats" in answer
    assert (await stand.last_run()).stop_reason == "not_understood"


# What was done, and what nobody knows


async def test_a_call_that_memory_and_history_say_is_done_is_not_made_again(stand: Stand) -> None:
    await stand.say(COUNT["zh"])
    await stand.say("喂猫")
    assert [name for name, _ in stand.tools.done] == ["look", "feed"]
    assert [call.repeat_of for call in (await stand.read()).tool_history] == [None, None]


async def test_a_call_is_made_again_when_memory_no_longer_says_that_it_is_done(stand: Stand) -> None:
    await stand.say(COUNT["zh"])
    await stand.remember({"goal": "照顾所有的猫", "completed": ["已找到 3 条鱼"], "next_action": "喂猫"})
    await stand.say(GO_ON["zh"])
    assert [name for name, _ in stand.tools.done] == ["look", "look", "feed"]


async def test_a_call_is_made_when_memory_says_done_and_the_history_has_no_result(stand: Stand) -> None:
    await stand.remember({"goal": "照顾所有的猫", "completed": ["已找到 3 只猫"], "next_action": "喂猫"})
    await stand.say(GO_ON["zh"])
    assert [name for name, _ in stand.tools.done] == ["look", "feed"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_unknown_outcome_is_said_to_be_unknown_and_the_call_is_not_repeated(
    stand: Stand, language: Language
) -> None:
    await stand.say(COUNT[language])
    await stand.lose_a_call("feed", {"cats": "3", "food": "fish"})
    answer = await stand.say(GO_ON[language])
    assert 'feed {"cats":"3","food":"fish"}' in answer
    assert ("结果未知" if language == "zh" else "is not known") in answer
    assert MEMORY[language]["goal"] in answer
    assert [name for name, _ in stand.tools.done] == ["look"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_call_of_unknown_outcome_is_repeated_when_the_user_says_so_and_then_known(
    stand: Stand, language: Language
) -> None:
    await stand.say(COUNT[language])
    await stand.lose_a_call("feed", {"cats": "3", "food": "fish"})
    await stand.say(RETRY[language])
    assert stand.tools.done[1:] == [("feed", {"cats": "3", "food": "fish"})]
    lost, again = (await stand.read()).tool_history[-2:]
    assert (lost.status, again.status, again.repeat_of) == ("unknown", "succeeded", lost.seq)
    answer = await stand.say(GO_ON[language])
    assert ("结果未知" if language == "zh" else "is not known") not in answer
    assert "3" in (await stand.say(RETRY[language]))
    assert len(stand.tools.done) == 3  # nothing is left to retry; going on has fed the cats


async def test_a_tool_that_fails_is_a_failed_call_and_the_answer_says_why(stand: Stand) -> None:
    stand.tools.fails_with = ToolFailed("the garden is closed")
    answer = await stand.say(COUNT["en"])
    assert "the garden is closed" in answer
    call = (await stand.read()).tool_history[0]
    assert (call.status, call.error) == ("failed", "the garden is closed")
    run = await stand.last_run()
    assert (run.status, run.stop_reason) == ("COMPLETED", "tool_failed")


async def test_a_fault_in_a_tool_fails_the_run(stand: Stand) -> None:
    stand.tools.fails_with = ZeroDivisionError("a fault")
    with pytest.raises(ZeroDivisionError):
        await stand.say(COUNT["en"])
    run = await stand.last_run()
    assert run.error is not None
    assert (run.status, run.error.code) == ("FAILED", "agent_error")
    assert (await stand.read()).tool_history[0].status == "failed"


async def test_a_result_that_is_not_as_expected_is_told_and_nothing_is_claimed(stand: Stand) -> None:
    stand.tools.fed = False
    await stand.say(COUNT["en"])
    answer = await stand.say(GO_ON["en"])
    assert "fed is False, it should be True" in answer
    memory = (await stand.read()).working_memory
    assert memory is not None
    assert memory.next_action == "Feed the cats"
    assert (await stand.last_run()).stop_reason == "unexpected_result"


# How it is written down


async def test_a_result_is_written_once_as_the_answer_to_the_call_that_asked(stand: Stand) -> None:
    await stand.say(COUNT["en"])
    asked, answered = (await stand.messages())[1:3]
    assert asked.tool_calls is not None
    (requested,) = asked.tool_calls
    assert answered.role == "tool"
    assert answered.tool_call_id == requested["id"]
    assert json.loads(requested["function"]["arguments"]) == {"where": "garden"}
    call = (await stand.read()).tool_history[0]
    assert (call.tool_call_id, call.status, call.result) == (requested["id"], "succeeded", {"cats": 3, "kind": "tabby"})
    kinds = [event.kind for event in await stand.sessions.events(stand.session_id)]
    assert "tool_call_finished" not in kinds


async def test_it_is_an_engine_and_says_everywhere_that_it_is_scripted(stand: Stand) -> None:
    assert isinstance(stand.engine, Engine)
    await stand.say(COUNT["en"])
    run = await stand.last_run()
    assert run.agent == "scripted-cats"
    said = [message for message in await stand.messages() if message.role == "assistant"]
    assert all(message.metadata["engine"] == "scripted" for message in said)
    steps = [event.data for event in await stand.sessions.events(stand.session_id, kind="run_step")]
    assert len(steps) == len(said) == 2
    assert all(step["name"].startswith("scripted") for step in steps)
    assert run.steps == 3  # and one tool call
    assert run.usage.input_tokens > 0 < run.usage.output_tokens


async def test_the_same_seed_says_the_same_and_another_seed_labels_its_calls_otherwise(stand: Stand) -> None:
    spoken: list[list[bytes]] = []
    for seed in (1, 1, 2):
        stand = await stand.another()
        stand.engine = stand.engine_of(seed)
        await stand.say(COUNT["zh"])
        await stand.say(GO_ON["zh"])
        spoken.append([message.body for message in await stand.messages()])
    assert spoken[0] == spoken[1] != spoken[2]


async def test_a_run_that_is_asked_to_stop_says_nothing_more(stand: Stand) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def look(**arguments: Any) -> dict[str, Any]:
        entered.set()
        await go_on.wait()
        return {"cats": 3, "kind": "tabby"}

    stand.engine = ScriptedEngine(CATS, {"look": look, "feed": stand.tools.feed})

    async def work() -> None:
        async with stand.sessions.run(stand.session_id, input=COUNT["en"], lease=0.3) as run:
            await execute(stand.engine, run)

    working = asyncio.create_task(work())
    await entered.wait()
    async with asyncio.timeout(10):
        before = await stand.read()
        assert before.active_run_id is not None
        await stand.runs.cancel_run(stand.session_id, before.active_run_id)
        await asyncio.sleep(0.3)
        go_on.set()
        await working
    assert (await stand.last_run()).status == "CANCELLED"
    assert [message.role for message in await stand.messages()] == ["user", "assistant", "tool"]


async def test_without_an_input_the_goal_of_the_run_is_what_was_said(stand: Stand) -> None:
    async with stand.sessions.run(stand.session_id, goal=COUNT["en"]) as run:
        await execute(stand.engine, run)
    assert stand.tools.done == [("look", {"where": "garden"})]


async def test_the_text_parts_of_a_message_are_read_together(stand: Stand) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "Look:"}, picture, {"type": "text", "text": "数猫"}],
    }
    async with stand.sessions.run(stand.session_id, input=message) as run:
        await execute(stand.engine, run)
    assert stand.tools.done == [("look", {"where": "garden"})]


def test_a_script_whose_tools_are_not_all_given_is_refused() -> None:
    async def look(**arguments: Any) -> dict[str, Any]:
        return {}

    with pytest.raises(ValueError, match="feed"):
        ScriptedEngine(CATS, {"look": look})


@pytest.mark.parametrize(
    ("text", "language"), [("继续", "zh"), ("fix 项目", "zh"), ("go on", "en"), ("", "en"), ("très bien", "en")]
)
def test_one_chinese_character_makes_the_answer_chinese(text: str, language: Language) -> None:
    assert language_of(text) == language
