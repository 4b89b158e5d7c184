"""What a scripted agent says by itself, whatever its script."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from satchel.domain.memory import WorkingMemory
from satchel.domain.tool_call import ToolCall
from satchel.engines.script import Language, Text

NOT_KNOWN = Text(
    "我不知道要继续什么:这个会话的工作记忆是空的。请告诉我要做什么。",
    "I do not know what to continue: the working memory of this session is empty. Please tell me what to do.",
)
NOT_IN_MEMORY = Text(
    "我不知道要接着什么做:工作记忆里没有{what}。",
    "I do not know what to go on from: working memory does not hold {what}.",
)
NO_NEXT_STEP = Text(
    "工作记忆里没有记下一步,请告诉我怎么继续。",
    "Working memory does not say what comes next. Please tell me how to go on.",
)
NOT_MY_STEP = Text(
    "这一步不在我的脚本里,要由你来做,或者告诉我怎么继续。",
    "That step is not in my script: it is yours, or tell me how to go on.",
)
UNKNOWN_OUTCOME = Text(
    "{call} 的结果未知:执行它的进程在调用中途结束了,它可能已经生效,也可能没有。我没有重做它;需要重做请说「重做」。",
    "The outcome of {call} is not known: the process that ran it ended in the middle, so it may or may not have taken"
    ' effect. I have not repeated it; say "retry" if I should.',
)
NOTHING_TO_RETRY = Text("没有结果未知的调用需要重做。", "No call has an unknown outcome: there is nothing to retry.")
RETRIED = Text("重做了 {call},这次知道结果。", "Repeated {call}; this time its outcome is known.")
RETRYING = Text("按你的要求重做 {call}。", "Repeating {call}, as you asked.")
FROM_HISTORY = Text(
    "{call} 的结果取自工具历史(第 {seq} 条),不再调用。",
    "The result of {call} is taken from the tool history (entry {seq}); it is not called again.",
)
TOOL_FAILED = Text("{call} 失败:{error}", "{call} failed: {error}")
UNEXPECTED = Text(
    "{call} 不符合预期:{path} 是 {found},应为 {wanted}。",
    "{call} is not as expected: {path} is {found}, it should be {wanted}.",
)
NOT_UNDERSTOOD = Text(
    "我是按脚本工作的演示代理,这句话不在脚本里。我懂的有:{examples}",
    "I am a scripted demo agent, and this is not in my script. What I understand: {examples}",
)

_MISSING = Text("(工作记忆里没有)", "(not in working memory)")
_OPENINGS = (
    Text("接着刚才的任务:{goal}。", "Going on with the task: {goal}."),
    Text("回到刚才的任务:{goal}。", "Back to the task: {goal}."),
)
_GOAL = Text("目标:{goal}。", "Goal: {goal}.")
_LAST = Text("最近完成:{last}。", "Last completed: {last}.")
_NEXT = Text("下一步:{next}。", "Next: {next}.")
_MORE = (
    ("errors", Text("已知错误:{items}。", "Known errors: {items}.")),
    ("important_files", Text("相关文件:{items}。", "Files: {items}.")),
    ("plan", Text("计划:{items}。", "Plan: {items}.")),
)


def recap(memory: WorkingMemory, language: Language, *, variant: int) -> str:
    """All that working memory holds, field by field: what is lost there is missing here."""
    lines = [_with_goal(_OPENINGS[variant % len(_OPENINGS)], memory, language), _last(memory, language)]
    for field, text in _MORE:
        items: tuple[str, ...] = getattr(memory, field)
        if items:
            lines.append(text.fill(language, {"items": _listed(items, language)}))
    return "\n".join([*lines, _next(memory, language)])


def standing(memory: WorkingMemory, language: Language) -> str:
    """Where the task stands: the end of each answer."""
    between = "" if language == "zh" else " "
    return between.join((_with_goal(_GOAL, memory, language), _last(memory, language), _next(memory, language)))


def call_shown(tool: str, arguments: object) -> str:
    """``run_shell {"command":"python3 app.py"}``, at most 200 characters."""
    shown = f"{tool} {msgspec.json.encode(arguments).decode()}"
    return shown if len(shown) <= 200 else shown[:199] + "…"


def unknown_shown(calls: Sequence[ToolCall], language: Language) -> str:
    return "\n".join(UNKNOWN_OUTCOME.fill(language, {"call": call_shown(call.tool, call.arguments)}) for call in calls)


def _with_goal(text: Text, memory: WorkingMemory, language: Language) -> str:
    return text.fill(language, {"goal": memory.goal or _MISSING.fill(language, {})})


def _last(memory: WorkingMemory, language: Language) -> str:
    last = memory.completed[-1] if memory.completed else _MISSING.fill(language, {})
    return _LAST.fill(language, {"last": last})


def _next(memory: WorkingMemory, language: Language) -> str:
    return _NEXT.fill(language, {"next": memory.next_action or _MISSING.fill(language, {})})


def _listed(items: Sequence[str], language: Language) -> str:
    return ("、" if language == "zh" else ", ").join(items)
