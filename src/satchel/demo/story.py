"""A session's log as lines for a reader: who said what, which tool answered what."""

from __future__ import annotations

import json
from typing import Any

from satchel import Event, Run

WIDTH = 110


def lines_of(event: Event) -> list[tuple[str, str]]:
    """(who, what) for each line of an event; none for what a reader would not miss."""
    body = event.data
    match event.kind:
        case "message":
            return _said(event.refers_to, body)
        case "tool_call_started":
            return [("", f"→ {call_line(body['tool'], body['arguments'])}")]
        case "tool_call_finished":
            return [("", f"← {body['status']}")]
        case "working_memory_changed":
            return [("memory", change) for change in _changes(body)]
        case "run_started":
            return [("run", "RUNNING" if body["attempt"] == 1 else f"RUNNING, attempt {body['attempt']}")]
        case "run_ended":
            error = f", {body['error']['code']}" if "error" in body else ""
            tokens = body.get("usage", {}).get("total_tokens", 0)
            return [("run", f"{body['status']}{error}: {body['steps']} steps, {tokens} tokens (estimated)")]
        case "session_closed" | "session_restored" | "session_expired":
            return [("session", f"{event.kind.removeprefix('session_')}, by {event.actor}")]
        case _:
            return []


def call_line(tool: str, arguments: Any) -> str:
    """`read_file README.md`: the tool and its arguments, on one line."""
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    words = " ".join(value if isinstance(value, str) else json.dumps(value) for value in values if value is not None)
    return cut(f"{tool} {words}".strip())


def run_rows(runs: tuple[Run, ...]) -> list[list[str]]:
    """A table: each run with its status, times, steps and tokens."""
    head = ["run", "status", "started", "took", "steps", "tokens", "input"]
    rows = [
        [
            str(run.number),
            run.status if run.error is None else f"{run.status} ({run.error.code})",
            "" if run.start_time is None else f"{run.start_time:%H:%M:%S}",
            f"{run.duration_ms or 0} ms",
            str(run.steps),
            str(run.usage.total_tokens),
            run.goal,
        ]
        for run in runs
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head) - 1)]
    return [
        [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)] + row[-1:] for row in [head, *rows]
    ]


def cut(text: str) -> str:
    """One line of at most WIDTH printable characters."""
    text = " ".join(text.split())
    text = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _said(answers_call: int | None, body: dict[str, Any]) -> list[tuple[str, str]]:
    content = body.get("content") or ""
    if body["role"] == "tool":
        return [("", f"← {_result_line(content)}")] if answers_call is not None else []
    who = "Ada" if body["role"] == "user" else "agent"
    lines = [line for line in content.split("\n") if line]
    return [(who if index == 0 else "", line) for index, line in enumerate(lines)]


def _result_line(content: str) -> str:
    try:
        result = json.loads(content)
    except ValueError:
        return cut(content)
    match result:
        case {"exit_code": code, "stdout": out, "stderr": err}:
            last = [line for line in f"{out}\n{err}".split("\n") if line.strip()][-1:]
            return cut(f"exit code {code}{': ' if last else ''}{''.join(last)}")
        case {"files": files}:
            return cut(", ".join(files))
        case {"columns": columns, "rows": [first, *more]}:
            row = ", ".join(f"{name} {value}" for name, value in zip(columns, first, strict=True))
            return cut(f"{row}{f'  (and {len(more)} more rows)' if more else ''}")
        case {"bytes": size, "created": _}:
            return f"written, {size} bytes"
        case {"bytes": size}:
            return f"{size} bytes"
        case _:
            return cut(content)


def _changes(patch: dict[str, Any]) -> list[str]:
    lines = [f"{field} cleared" for field in patch.get("clear", [])] if len(patch) == 1 else []
    for verb, sign in (("remove", "-"), ("append", "+")):
        lines += [f"{field} {sign} {item}" for field, items in patch.get(verb, {}).items() for item in items]
    return lines + [f"{field} = {value}" for field, value in patch.get("set", {}).items()]
