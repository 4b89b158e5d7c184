"""A run's own layer over the session's working memory: what the run changes, kept beside the memory until the run completes.

The layer is all patches of the run in one: patches one after another are again a patch. For every field that it replaces
(sets or clears) it keeps the mark of what the session's memory held when the run first did so; another mark at the end
means that somebody else changed the field meanwhile.
"""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.bodies import NotMerged
from satchel.domain.canonical import canonical
from satchel.domain.edit import Edit
from satchel.domain.idempotency import fingerprint
from satchel.domain.json_text import NO_JSON, decode, raw_json, walk
from satchel.domain.limits import WRITTEN_HERE, Limits
from satchel.domain.memory import FIELDS, MemoryPatch, WorkingMemory, admit_patch, memory_from, stored_memory
from satchel.domain.run import RunRow
from satchel.errors import LimitExceeded

_encode = msgspec.json.Encoder().encode


def then(first: MemoryPatch, second: MemoryPatch) -> MemoryPatch:
    """One patch that does what the two do, one after the other."""
    clear: list[str] = []
    remove: dict[str, tuple[str, ...]] = {}
    append: dict[str, tuple[str, ...]] = {}
    replaced: dict[str, Any] = {}
    for name in FIELDS:
        out, put = second.remove.get(name, ()), second.append.get(name, ())
        if name in second.set:
            replaced[name] = second.set[name]
        elif name in second.clear:
            clear.append(name)
            append[name] = put
        elif name in first.set:
            replaced[name] = _changed(first.set[name], out, put)
        else:
            kept = tuple(item for item in first.append.get(name, ()) if item not in out)
            append[name] = kept + put
            if name in first.clear:
                clear.append(name)
            else:
                remove[name] = tuple(dict.fromkeys((*first.remove.get(name, ()), *out)))
    return MemoryPatch(clear=tuple(clear), remove=_filled(remove), append=_filled(append), set=replaced)


def _changed(value: Any, out: tuple[str, ...], put: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return value  # texts are only replaced
    if isinstance(value, dict):
        return {key: held for key, held in value.items() if key not in out}
    return (*(item for item in value if item not in out), *put)


def _filled(items: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: value for name, value in items.items() if value}


def layer_of(row: RunRow) -> MemoryPatch:
    text = bytes(row.layer)
    return admit_patch(text, limits=WRITTEN_HERE) if text else MemoryPatch()


def layered(memory: WorkingMemory, row: RunRow) -> WorkingMemory:
    """The memory as this run sees it. Its ``version`` is that of the newest change of either."""
    seen = layer_of(row).apply(memory)
    return memory_from(
        stored_memory(seen, limits=WRITTEN_HERE),
        version=max(memory.version, row.layer_version),
        replayed=memory.replayed,
    )


def with_patch(row: RunRow, patch: MemoryPatch, memory: WorkingMemory, *, version: int, limits: Limits) -> RunRow:
    """The run with one more patch in its layer, over the session's ``memory``. Raises LimitExceeded."""
    grown = then(layer_of(row), patch)
    text = _encode(grown.to_dict())
    if len(text) > limits.working_memory:
        raise LimitExceeded(
            field="the run's working memory",
            size=len(text),
            limit=limits.working_memory,
            setting="limits.working_memory",
        )
    if len(text) > limits.nodes:  # the log tells of it in one patch
        walk(decode(text), field="the run's working memory", limits=limits)
    base = {name: row.layer_base.get(name) or _mark(memory, name) for name in (*grown.clear, *grown.set)}
    return msgspec.structs.replace(
        row, layer=raw_json(b"" if text == b"{}" else text), layer_base=base, layer_version=version
    )


def without_layer(row: RunRow) -> RunRow:
    if row.layer is NO_JSON and not row.layer_base:
        return row
    return msgspec.structs.replace(row, layer=NO_JSON, layer_base={})


def merge_layer(edit: Edit, row: RunRow, *, limits: Limits) -> RunRow:
    """The run completes: its layer goes into the session's memory as it is now, and what cannot go stays with the run."""
    if not bytes(row.layer):
        return row
    memory = memory_from(edit.state.working_memory)
    layer = layer_of(row)
    own = layer.apply(memory)
    changed = [
        name
        for name, mark in row.layer_base.items()
        if _mark(memory, name) != mark and canonical(own.part(name)) != canonical(memory.part(name))
    ]
    patch = _without(layer, changed)
    left = MemoryPatch(set={name: own.part(name) for name in changed})
    row = without_layer(row)
    try:
        stored = stored_memory(patch.apply(memory), limits=limits)
    except LimitExceeded:
        return edit.put_run(_keeping(row, "limit", layer))
    if stored != edit.state.working_memory:
        edit.working_memory = stored
        edit.event("working_memory_changed", _encode(patch.to_dict()), run_id=row.run_id)
        edit.touch("working_memory")
    return edit.put_run(_keeping(row, "changed", left) if changed else row)


def _keeping(row: RunRow, reason: Any, patch: MemoryPatch) -> RunRow:
    kept = NotMerged(reason=reason, patch=msgspec.Raw(_encode(patch.to_dict())))
    return msgspec.structs.replace(row, not_merged=msgspec.Raw(_encode(kept)))


def _without(patch: MemoryPatch, names: list[str]) -> MemoryPatch:
    return MemoryPatch(
        clear=tuple(name for name in patch.clear if name not in names),
        remove={name: items for name, items in patch.remove.items() if name not in names},
        append={name: items for name, items in patch.append.items() if name not in names},
        set={name: value for name, value in patch.set.items() if name not in names},
    )


def _mark(memory: WorkingMemory, name: str) -> str:
    return fingerprint(canonical(memory.part(name))).hex()
