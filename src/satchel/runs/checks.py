"""What is asked of the arguments of a run, by every manager, wherever its store is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.access import checked_choice, checked_flag
from satchel.domain.clock import SECOND
from satchel.domain.ids import checked_id, checked_line
from satchel.domain.json_text import kind_of
from satchel.domain.limits import Limits
from satchel.domain.message import admit_metadata
from satchel.domain.run import Run
from satchel.errors import InvalidInput, RunFenced

LEASE = 30.0  # seconds; renewed at a third of it
GOAL_BYTES = 8 * 1024


def check_options(*, on_busy: object, memory: object, start: object, max_attempts: object) -> None:
    """Of a new run. Raises InvalidInput."""
    checked_choice(on_busy, ("reject", "queue", "cancel"), field="on_busy")
    checked_choice(memory, ("session", "run"), field="memory")
    checked_flag(start, field="start")
    if type(max_attempts) is not int or not 1 <= max_attempts <= 100:
        raise InvalidInput("must be a whole number from 1 to 100", field="max_attempts")


def said_by_user(input: Mapping[str, Any] | str | bytes) -> Mapping[str, Any] | bytes:
    """What a run answers: a text is a user's."""
    return {"role": "user", "content": input} if isinstance(input, str) else input


def admit_task(goal: str, agent: str | None, metadata: Mapping[str, Any] | None, *, limits: Limits) -> bytes | None:
    """What a new run is to do, and by whom. Answers its metadata as JSON. Raises InvalidInput, LimitExceeded."""
    kept = None if metadata is None else admit_metadata(metadata, limits=limits)
    checked_text(goal, field="goal")
    if agent is not None and agent != "":
        checked_id(agent, field="agent", limits=limits)
    return kept


def check_tokens(*counts: int) -> None:
    """Raises InvalidInput."""
    if any(type(count) is not int or not 0 <= count < 1 << 53 for count in counts):
        raise InvalidInput("must be whole numbers from 0", field="tokens")


def ended_instead(run: Run) -> RunFenced:
    """For who waits for the answer to a question, and hears that the run is another's or nobody's any more."""
    reason = f"it is {run.status}" if run.stop_reason is None else f"it is {run.status} ({run.stop_reason})"
    return RunFenced(run_id=run.run_id, attempt=run.attempt, reason=reason)


def checked_lease(seconds: float) -> int:
    """Microseconds. Raises InvalidInput."""
    if type(seconds) not in (int, float) or not 0.05 <= seconds <= 86_400:
        raise InvalidInput("must be seconds, from 0.05 to 86400", field="lease")
    return int(seconds * SECOND)


def checked_duration(milliseconds: int) -> int:
    """Raises InvalidInput."""
    if type(milliseconds) is not int or not 0 <= milliseconds < 1 << 53:
        raise InvalidInput("must be a whole number from 0", field="duration_ms")
    return milliseconds


def checked_text(text: str, *, field: str) -> str:
    """Text of several lines, of at most 8 KiB."""
    if type(text) is not str:
        raise InvalidInput(f"must be text, not {kind_of(text)}", field=field)
    checked_line(
        "".join(char for char in text if char not in "\n\t\r"), field=field, limit=GOAL_BYTES, setting="a fixed limit"
    )
    return text
