"""Agent engines that come with Satchel."""

from satchel.engines.chat import ChatEngine, ChatTool
from satchel.engines.script import Call, Intent, Keep, Recall, Remember, Say, Script, Text
from satchel.engines.scripted import ScriptedEngine
from satchel.engines.tools import Tool, ToolFailed

__all__ = [
    "Call",
    "ChatEngine",
    "ChatTool",
    "Intent",
    "Keep",
    "Recall",
    "Remember",
    "Say",
    "Script",
    "ScriptedEngine",
    "Text",
    "Tool",
    "ToolFailed",
]
