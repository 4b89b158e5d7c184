"""What decisions see: all sessions of a load in one snapshot, a statement for each kind of row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.errors import InvalidInput
from satchel.store import Loaded
from satchel.stores.mysql.connection import Fetch, Row
from satchel.stores.mysql.literals import Part, rows
from satchel.stores.mysql.queries import SQL
from satchel.stores.mysql.rows import CALL, EVENT, PIECE, RUN, named
from satchel.stores.sql import loading
from satchel.stores.sql.loading import Found, ReadClock, add_part, is_plain

AT_ONCE = 500  # things in one list: beyond a thousand MariaDB makes a table of it
_CLOCK = SQL["clock"]()


class _Kind:
    """One kind of what is wanted: the part of a state that it becomes, its statement, how each Want names it."""

    def __init__(
        self,
        part: str,
        statement: str,
        wanted: Callable[[Want], Sequence[tuple[object, ...]]],
        *,
        names: tuple[int, ...] = (),
        one_by_one: bool = False,
    ) -> None:
        self.part = part
        self.statement = SQL[statement]
        self.wanted = wanted
        self.names = names
        self.one_by_one = one_by_one

    def statements(self, things: Sequence[tuple[object, ...]]) -> list[bytes]:
        lots = [things[start : start + AT_ONCE] for start in range(0, len(things), AT_ONCE)]
        if self.one_by_one:
            return [self.statement.for_each(lot) for lot in lots]
        return [self.statement(rows(lot)) for lot in lots]


_PLAIN = (
    _Kind("record", "load_records", lambda _: [()]),
    _Kind("key", "load_keys", lambda want: [(key,) for key in want.keys]),
)
_ALL = (
    *_PLAIN,
    _Kind("run", "load_runs", lambda want: [(run_id,) for run_id in want.run_ids], names=RUN),
    _Kind("call", "load_calls", lambda want: [(seq,) for seq in want.call_seqs], names=CALL),
    _Kind("equal", "load_equal", lambda want: [(one,) for one in want.arguments_hashes], one_by_one=True),
    _Kind("event", "load_events", lambda want: [(seq,) for seq in want.event_seqs], names=EVENT),
    _Kind("event", "load_retractions", lambda want: [(seq,) for seq in want.event_seqs], names=EVENT),
    _Kind("working_memory", "load_working_memory", lambda want: [()] if want.working_memory else []),
    _Kind("metadata", "load_metadata", lambda want: [()] if want.metadata else []),
    _Kind("piece", "load_pieces", lambda want: want.streams, names=PIECE),
    _Kind("step", "load_step", lambda want: want.steps, names=CALL, one_by_one=True),
)


async def load(fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]) -> Loaded:
    """``read_clock`` makes the store's clock of the server's."""
    return await loading.load(partial(_ask, fetch, read_clock), wanted)


async def _ask(
    fetch: Fetch, read_clock: ReadClock, wanted: Mapping[SessionRef, Want]
) -> tuple[Clock, dict[SessionRef, Found]]:
    statements: list[bytes] = [_CLOCK]
    kinds: list[_Kind] = []
    found: dict[SessionRef, Found] = {}
    refs: dict[tuple[bytes, bytes], SessionRef] = {}
    try:
        for ref in wanted:
            found[ref] = Found()
            refs[ref.tenant_id.encode(), ref.session_id.encode()] = ref
        for kind in _PLAIN if all(map(is_plain, wanted.values())) else _ALL:
            asked = kind.statements([(*ref, *one) for ref, want in wanted.items() for one in kind.wanted(want)])
            statements += asked
            kinds += [kind] * len(asked)
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"holds a value that this store cannot look for ({type(error).__name__})", field="request"
        ) from error
    (((now,),), *lists) = await fetch(*statements)
    for kind, list_ in zip(kinds, lists, strict=True):
        for tenant_id, session_id, *row in list_:
            ref = refs[tenant_id, session_id]
            add_part(ref, found[ref], kind.part, _columns(kind, row))
    return read_clock(now), found


def _columns(kind: _Kind, row: Row) -> Row:
    return named(row, kind.names) if kind.names else row


def in_lots(things: Sequence[tuple[object, ...]]) -> list[Part]:
    """As lists that a statement takes."""
    return [rows(things[start : start + AT_ONCE]) for start in range(0, len(things), AT_ONCE)]
