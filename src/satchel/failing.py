"""An exception as the error of a run, or of a tool call: text that can be stored."""

from __future__ import annotations

from satchel.domain.run import RunError
from satchel.errors import RunFailed

LONGEST = 2000  # characters


def failure_of(error: BaseException) -> RunError:
    """What a run's error says about the exception that its agent raised."""
    if isinstance(error, RunFailed):
        return RunError(code=storable(str(error.error_code))[:200], message=storable(str(error.message)))
    return RunError(code="agent_error", message=readable(error))


def readable(error: BaseException) -> str:
    """An exception as text that can be stored, at most 2,000 characters."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  # an exception whose text raises is still an exception
        said = "(its text cannot be read)"
    return storable(f"{type(error).__name__}: {said}")


def storable(text: str) -> str:
    """What cannot be stored or shown becomes U+FFFD."""
    text = text[:LONGEST].encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
