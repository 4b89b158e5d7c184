"""What decisions see: all sessions of a load in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from satchel.domain.ids import SessionRef
from satchel.domain.state import NOTHING, Clock, Want
from satchel.store import Loaded
from satchel.stores.postgres.connection import Fetch
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql import loading
from satchel.stores.sql.loading import Found, ReadClock, add_part, is_plain

_LOAD = SQL["load"]
_LOAD_ALL = SQL["load_all"]
# Of a Want the keys are in both statements; in the one for everything these follow, each with its values.
_LISTS = ("run_ids", "call_seqs", "arguments_hashes", "event_seqs")
_TEXTS = ("working_memory", "metadata")


async def load(fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]) -> Loaded:
    """``fetch`` runs one statement; ``read_clock`` makes the store's clock of the server's."""
    return await loading.load(partial(_ask, fetch, read_clock), wanted)


async def _ask(
    fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]
) -> tuple[Clock, dict[SessionRef, Found]]:
    refs = list(wanted)
    values: list[Any] = [[ref.tenant_id for ref in refs], [ref.session_id for ref in refs]]
    values += _lists(refs, [want.keys for want in wanted.values()])
    if all(want is NOTHING or is_plain(want) for want in wanted.values()):
        rows = await fetch(_LOAD, *values)
    else:
        for name in _LISTS:
            values += _lists(refs, [getattr(want, name) for want in wanted.values()])
        for name in _TEXTS:
            values += _lists(refs, [(None,) if getattr(want, name) else () for want in wanted.values()])[:3]
        values += _apart(_lists(refs, [want.streams for want in wanted.values()]), 3)
        values += _apart(_lists(refs, [want.steps for want in wanted.values()]), 2)
        rows = await fetch(_LOAD_ALL, *values)
    found = {ref: Found() for ref in refs}
    clock = read_clock(rows[0][2][0])
    for part, position, row in rows[1:]:
        ref = refs[position - 1]
        add_part(ref, found[ref], part, row)
    return clock, found


def _lists(refs: Sequence[SessionRef], values: Sequence[Sequence[object]]) -> list[list[Any]]:
    """As columns: position, tenant, session, value."""
    columns: list[list[Any]] = [[], [], [], []]
    positions, tenants, sessions, asked = columns
    for index, ref in enumerate(refs):
        for value in values[index]:
            positions.append(index + 1)
            tenants.append(ref.tenant_id)
            sessions.append(ref.session_id)
            asked.append(value)
    return columns


def _apart(columns: list[list[Any]], width: int) -> list[list[Any]]:
    """The values, which are tuples, as columns of their own."""
    *places, values = columns
    return [*places, *(list(column) for column in zip(*values, strict=True))] if values else [[]] * (3 + width)
