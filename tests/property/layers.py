"""A run's layer of working memory in the plain model: for each field what the run did to it, in the end."""

from __future__ import annotations

import copy
from typing import Any

# What a run did to a field: it holds this value; or, beside what the session's memory holds, these are out and those in.
Did = tuple[str, Any, Any]
Layer = dict[str, Did]
TEXTS = ("goal", "next_action")
NOTHING: Did = ("beside", [], [])


def empty(name: str) -> Any:
    return "" if name in TEXTS else {} if name == "notes" else []


def patched(layer: Layer, patch: dict[str, Any]) -> Layer:
    new = copy.deepcopy(layer)
    for name in patch.get("clear", ()):
        new[name] = ("holds", empty(name), None)
    for name, items in patch.get("remove", {}).items():
        how, value, put = new.get(name, NOTHING)
        if how == "holds":
            new[name] = (how, [item for item in value if item not in items], None)
        else:
            out = [*value, *(item for item in items if item not in value)]
            new[name] = (how, out, [item for item in put if item not in items])
    for name, items in patch.get("append", {}).items():
        how, value, put = new.get(name, NOTHING)
        new[name] = (how, [*value, *items], None) if how == "holds" else (how, value, [*put, *items])
    for name, value in patch.get("set", {}).items():
        new[name] = ("holds", copy.deepcopy(value), None)
    return {name: did for name, did in new.items() if did != NOTHING}


def seen(memory: dict[str, Any], layer: Layer, *, without: tuple[str, ...] | list[str] = ()) -> dict[str, Any]:
    fields = dict(memory)
    for name, (how, value, put) in layer.items():
        if name in without:
            continue
        held = fields.get(name, empty(name))
        fields[name] = value if how == "holds" else [*(item for item in held if item not in value), *put]
    return {name: value for name, value in fields.items() if value}
