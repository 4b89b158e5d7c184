"""The chat engine: a model behind any OpenAI-compatible endpoint, and Python functions as its tools."""

from satchel.engines.chat.engine import ChatEngine, from_environment
from satchel.engines.chat.tools import ChatTool

__all__ = ["ChatEngine", "ChatTool", "from_environment"]
