"""Rows of runs: a head, and the run as JSON with what is JSON inside of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from satchel.domain.event import CORRUPT_BODY
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import NO_JSON
from satchel.domain.run import RunError, RunRow, RunStatus
from satchel.errors import StoreCorrupt
from satchel.stores.redis.rows import BROKEN, body_of, checked, is_json, legible, pack_row, parts_of

_TEXTS = ("metadata", "input", "input_metadata", "layer", "not_merged")  # JSON inside of a run's JSON


class _RunHead(msgspec.Struct, array_like=True, gc=False):
    run_id: str
    number: int
    status: RunStatus
    parent_run_id: str | None = None
    input_seq: int | None = None


_encode_run = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(RunRow).decode
_run_head = msgspec.msgpack.Decoder(_RunHead).decode


def run_row(run: RunRow) -> bytes:
    """An input that is a message by now stands in the log alone."""
    texts = {name: NO_JSON for name in _TEXTS if not getattr(run, name)}
    if run.input_seq is not None:
        texts["input"] = NO_JSON
    for name in _TEXTS:
        checked(bytes(getattr(run, name)))
    plain = msgspec.structs.replace(run, **texts)
    return pack_row([run.run_id, run.number, run.status, run.parent_run_id, run.input_seq], _encode_run(plain))


def run_of(ref: SessionRef, run_id: str, found: Sequence[bytes | None]) -> RunRow:
    """``found``: its row, and the event that its input is by now. Raises StoreCorrupt, unless it is that message which cannot be
    read: that is the message's fault."""
    row, message = found
    try:
        run = _decode_run(parts_of(row or b"")[1])
    except BROKEN as error:
        raise StoreCorrupt(f"run {run_id} of session {ref.session_id}") from error
    said = body_of(message)
    # Each is cut out of the row, which would stay in memory with it.
    texts = {name: msgspec.Raw(bytes(text)) for name in _TEXTS if (text := getattr(run, name))}
    if run.input_seq is not None and said is not None:
        texts["input"] = msgspec.Raw(said if is_json(said) else CORRUPT_BODY)
    return msgspec.structs.replace(run, **texts) if texts else run


def shown_run(ref: SessionRef, run_id: str, found: Sequence[bytes | None]) -> RunRow:
    try:
        return run_of(ref, run_id, found)
    except StoreCorrupt:
        head = legible(_run_head, found[0] or b"") or _RunHead(run_id, 0, "FAILED")
        return RunRow(
            run_id=run_id,
            number=head.number,
            status=head.status,
            created_at=0,
            version=0,
            error=RunError(code="store_corrupt", message="what is stored of this run cannot be read"),
            input_seq=head.input_seq,
            input=msgspec.Raw(CORRUPT_BODY),
        )
