"""What an append hands to the driver, which looks for an adapter of most values and binds three kinds as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.record import SessionRecord
from satchel.stores.sqlite.rows import idempotency_row, is_plain, narrow_row, plain_event_row

PLAIN = Event(seq=1, version=1, kind="message", at=1, actor="user:ada", body=b'{"role":"user","content":"hello"}')
SAID: dict[str, Any] = {
    "refers_to": 1,
    "status": "interrupted",
    "format": "another",
    "metadata": b"{}",
    "outcome": "succeeded/text",
    "tokens": 0,
    "streamed": 0,
}
COLUMNS = ("seq", "version", "kind", "at", "actor", "body", "run_id")


def test_every_field_of_an_event_is_in_its_short_row_or_keeps_it_from_having_one() -> None:
    assert {*COLUMNS, *SAID} == set(Event.__struct_fields__)


@pytest.mark.parametrize("field", SAID)
def test_an_event_of_which_more_is_said_has_no_short_row(field: str) -> None:
    assert is_plain(PLAIN)
    assert is_plain(msgspec.structs.replace(PLAIN, run_id="run_1"))
    assert not is_plain(msgspec.structs.replace(PLAIN, **{field: SAID[field]}))


def test_the_rows_of_an_append_hold_only_what_is_bound_as_it_is() -> None:
    record = SessionRecord(
        tenant_id="acme",
        session_id="sess_a",
        user_id="ada",
        revision=1,
        created_at=1,
        updated_at=1,
        active_at=1,
        clock_from=1,
    )
    kept = IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(1, 1, (1,)))
    for row in (
        narrow_row(record),
        plain_event_row("acme", "sess_a", PLAIN),
        idempotency_row("acme", "sess_a", kept),
    ):
        assert {type(value) for value in row} <= {int, str, bytearray}
