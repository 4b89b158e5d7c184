"""Working memory: what the agent knows of its task, in six fields and free notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from satchel.domain.frozen import Items, Members, refusal
from satchel.domain.json_text import admit, decode, kind_of
from satchel.domain.limits import Limits
from satchel.domain.spelling import Spellings, all_spellings, may_change
from satchel.errors import InvalidInput, LimitExceeded

TEXTS = ("goal", "next_action")
LISTS = ("plan", "completed", "errors", "important_files")
FIELDS = ("goal", "plan", "completed", "errors", "important_files", "next_action", "notes")
VERBS = ("clear", "remove", "append", "set")  # in the order in which a patch acts

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class WorkingMemory(msgspec.Struct, kw_only=True):
    """``version`` is the session's version at which the memory last changed: pass it as ``expected_version``."""

    goal: str = ""
    plan: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    important_files: tuple[str, ...] = ()
    next_action: str = ""
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    version: int = 0
    replayed: bool = False
    spelt: Spellings = {}  # notes that Python's numbers would spell otherwise: for to_json

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise refusal("update_working_memory")

    def __delattr__(self, name: str) -> NoReturn:
        raise refusal("update_working_memory")

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """The six fields, and ``notes`` unless they are empty."""
        shown: dict[str, Any] = {
            "goal": self.goal,
            "plan": list(self.plan),
            "completed": list(self.completed),
            "errors": list(self.errors),
            "important_files": list(self.important_files),
            "next_action": self.next_action,
        }
        if self.notes:
            shown["notes"] = self.notes
        return shown

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; numbers are spelled as they were given."""
        return _encode(self.as_spelled())

    def as_spelled(self) -> dict[str, Any]:
        """:meth:`to_dict`, with the JSON text of notes whose numbers Python would spell otherwise."""
        shown = self.to_dict()
        return shown | {"notes": self.part("notes")} if self.spelt else shown

    def part(self, name: str) -> Any:
        """A field, as :meth:`as_spelled` has it."""
        return {**self.notes, **self.spelt} if name == "notes" and self.spelt else getattr(self, name)


def memory_from(data: bytes, *, version: int = 0, replayed: bool = False) -> WorkingMemory:
    """Stored memory, read. Empty bytes are an empty memory."""
    fields: dict[str, Any] = decode(data) if data else {}
    for name in LISTS:
        fields[name] = Items(fields.get(name, ()), "update_working_memory")
    fields["notes"] = Members(fields.get("notes", {}), "update_working_memory")
    spelt = all_spellings(_note_text(data)) if may_change(data) else {}
    return WorkingMemory(**fields | {"version": version, "replayed": replayed, "spelt": spelt})


def _note_text(data: bytes, *path: str) -> bytes:
    """The JSON text of the notes in a memory, or deeper in."""
    for name in (*path, "notes"):
        data = bytes(_members(data).get(name, b"{}"))
    return data


def _made(fields: Mapping[str, Any]) -> WorkingMemory:
    """Of fields as ``part`` gives them."""
    notes = fields.get("notes", {})
    spelt = {name: value for name, value in notes.items() if type(value) is msgspec.Raw}
    if not spelt:
        return WorkingMemory(**fields)
    plain = {name: decode(bytes(value)) if name in spelt else value for name, value in notes.items()}
    return WorkingMemory(**{**fields, "notes": plain, "spelt": spelt})


def stored_memory(memory: WorkingMemory, *, limits: Limits) -> bytes:
    """As a store keeps it. Raises LimitExceeded."""
    data = _encode({name: value for name, value in memory.as_spelled().items() if value})
    if len(data) > limits.working_memory:
        raise LimitExceeded(
            field="working_memory", size=len(data), limit=limits.working_memory, setting="limits.working_memory"
        )
    return b"" if data == b"{}" else data


def admit_memory(memory: object, *, limits: Limits) -> WorkingMemory:
    """A whole memory as a caller gives it: a WorkingMemory, or a mapping in which absent fields are empty."""
    if isinstance(memory, WorkingMemory):
        memory = memory.to_json()
    body, data = admit(memory, field="working_memory", limits=limits)
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(data)}", field="working_memory")
    return _made(_spelled({name: _value(name, value, f"/{name}") for name, value in _known(data, "").items()}, body))


def _spelled(fields: dict[str, Any], body: bytes, *path: str) -> dict[str, Any]:
    """Fields that were read from ``body``: notes that Python would spell otherwise, as their text there."""
    if "notes" in fields and may_change(body):
        fields["notes"] = {**fields["notes"], **all_spellings(_note_text(body, *path))}
    return fields


class MemoryPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Acts in this order, all or nothing: clear, remove, append, set. Notes whose numbers Python would spell otherwise are JSON
    text in it."""

    clear: tuple[str, ...] = ()
    remove: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    append: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    set: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def needs_version(self) -> bool:
        """Whether it replaces what others may have written."""
        return bool(self.clear or self.set)

    def to_dict(self) -> dict[str, Any]:
        shown = {"clear": self.clear, "remove": self.remove, "append": self.append, "set": self.set}
        return {verb: value for verb, value in shown.items() if value}

    def apply(self, memory: WorkingMemory) -> WorkingMemory:
        fields: dict[str, Any] = {name: memory.part(name) for name in FIELDS}
        for name in self.clear:
            fields[name] = {} if name == "notes" else "" if name in TEXTS else ()
        for name, items in self.remove.items():
            if name == "notes":
                fields[name] = {key: value for key, value in fields[name].items() if key not in items}
            else:
                fields[name] = tuple(item for item in fields[name] if item not in items)
        for name, items in self.append.items():
            fields[name] = fields[name] + items
        fields.update(self.set)
        return _made(fields)


def admit_patch(patch: object, *, limits: Limits) -> MemoryPatch:
    """``{"clear": [field…], "remove": {field: item | [items]}, "append": {field: item | [items]}, "set": {field: value}}``.

    ``append`` takes the four lists, ``remove`` these and keys of ``notes``, ``clear`` and ``set`` every field. Raises InvalidInput with a
    pointer to the place.
    """
    body, data = admit(patch, field="patch", limits=limits)
    if len(body) > 2 * limits.working_memory:  # it is kept in the log, whatever the memory is after it
        raise LimitExceeded(
            field="patch", size=len(body), limit=2 * limits.working_memory, setting="twice limits.working_memory"
        )
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(data)}", field="patch")
    for verb in data:
        if verb not in VERBS:
            raise InvalidInput(f"is unknown; one of {', '.join(VERBS)}", field="patch", pointer=f"/{verb}")
    clear = data.get("clear", ())
    if not isinstance(clear, (list, tuple)):
        raise InvalidInput(f"must be a list of fields, not {kind_of(clear)}", field="patch", pointer="/clear")
    for index, name in enumerate(clear):
        if name not in FIELDS:
            raise InvalidInput(f"must be one of {', '.join(FIELDS)}", field="patch", pointer=f"/clear/{index}")
    replaced = {
        name: _value(name, value, f"/set/{name}") for name, value in _known(_object(data, "set"), "/set").items()
    }
    return MemoryPatch(
        clear=tuple(clear),
        remove=_items(data, "remove", (*LISTS, "notes")),
        append=_items(data, "append", LISTS),
        set=_spelled(replaced, body, "set"),
    )


def _object(data: Mapping[str, Any], verb: str) -> Mapping[str, Any]:
    value = data.get(verb, {})
    if not isinstance(value, Mapping):
        raise InvalidInput(f"must be an object, not {kind_of(value)}", field="patch", pointer=f"/{verb}")
    return value


def _items(data: Mapping[str, Any], verb: str, allowed: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in _object(data, verb).items():
        if name not in allowed:
            raise InvalidInput(f"{verb} takes {', '.join(allowed)}", field="patch", pointer=f"/{verb}/{name}")
        found[name] = _texts((value,) if isinstance(value, str) else value, f"/{verb}/{name}")
    return found


def _known(fields: Mapping[str, Any], pointer: str) -> Mapping[str, Any]:
    for name in fields:
        if name not in FIELDS:
            raise InvalidInput(
                f"is unknown; one of {', '.join(FIELDS)}", field="working_memory", pointer=f"{pointer}/{name}"
            )
    return fields


def _value(name: str, value: object, pointer: str) -> Any:
    if name in TEXTS:
        if not isinstance(value, str):
            raise InvalidInput(f"must be text, not {kind_of(value)}", field="working_memory", pointer=pointer)
        return value
    if name == "notes":
        if not isinstance(value, Mapping):
            raise InvalidInput(f"must be an object, not {kind_of(value)}", field="working_memory", pointer=pointer)
        return decode(_encode(value))  # ours alone: the caller may go on changing its own
    return _texts(value, pointer)


def _texts(value: object, pointer: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise InvalidInput(f"must be a list of texts, not {kind_of(value)}", field="working_memory", pointer=pointer)
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise InvalidInput(
                f"must be text, not {kind_of(item)}", field="working_memory", pointer=f"{pointer}/{index}"
            )
    return tuple(value)
