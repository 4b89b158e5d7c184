"""Where rows lie: the names of keys.

A session lies in one of BUCKETS buckets, by a hash of its tenant and id. All its keys hold the bucket's tag, `{b17}`, so a
cluster keeps them in one slot, beside the bucket's queues and lists: one script changes all of them at once. Only the text
between the first braces counts there, so braces in an id choose nothing. Parts of a name are joined by length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from redis.crc import key_slot

from satchel.domain.ids import SessionRef, join_parts
from satchel.domain.stream import StreamKey

BUCKETS = 256
KEPT_NAMES = 8192


class Names(NamedTuple):
    """The keys of one session (what each holds: rows.py), its bucket's queues, and how its entry in these is written."""

    bucket: int
    session: bytes  # hash: revision, record, entries, memory, metadata, held
    events: bytes  # list, in order of their seqs, which have no gap
    messages: bytes  # list of the seqs of messages
    keys: bytes  # hash of idempotency records
    tenant_list: bytes  # sorted set of session ids by updated_at, for the bucket and the tenant
    calls: bytes  # hash by seq
    call_order: bytes  # sorted set of seqs
    newest: bytes  # hash: h + arguments' hash, s + run and step: the seq of the newest call; t + seq: who took that message back
    runs: bytes  # hash by id
    run_order: bytes  # sorted set of ids by number
    ready: bytes  # the bucket's: sorted set, all of one score; * + entry, and a + agent + entry
    sweep: bytes  # the bucket's: sorted set of entries by sweep_at
    leases: bytes  # the bucket's: sorted set of entries by lease_until
    lease_clocks: bytes  # the bucket's: hash of entries whose lease counts on another clock than the server's
    streams: bytes  # set of the streams of which there are pieces
    all: bytes  # the bucket's: sorted set, all of one score, of the entries of all sessions
    entry: bytes
    hint: bytes  # the bucket's channel


class Keys:
    """All names of one store. ``prefix`` keeps stores on one server apart."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self.slots = [key_slot(b"{b%d}" % bucket) for bucket in range(BUCKETS)]
        self.schema = self._prefix + b":{schema}"
        self.settings = self._prefix + b":{settings}"
        self.names: Callable[[SessionRef], Names] = lru_cache(maxsize=KEPT_NAMES)(self._names)
        self.ready = [self.of_bucket(bucket, b"ready") for bucket in range(BUCKETS)]
        self.all = [self.of_bucket(bucket, b"all") for bucket in range(BUCKETS)]
        self.swept = [
            (self.of_bucket(bucket, b"sweep"), self.of_bucket(bucket, b"leases"), self.of_bucket(bucket, b"clocks"))
            for bucket in range(BUCKETS)
        ]

    def of_bucket(self, bucket: int, what: bytes) -> bytes:
        return self._prefix + b":{b%d}:%b" % (bucket, what)

    def fence(self, bucket: int) -> bytes:
        return self.of_bucket(bucket, b"fence")

    def hint(self, bucket: int) -> bytes:
        return self.of_bucket(bucket, b"hint")

    def _names(self, ref: SessionRef) -> Names:
        """Raises UnicodeEncodeError."""
        tenant, session = ref.tenant_id.encode(), ref.session_id.encode()
        bucket = hashlib.sha256(join_parts(*ref)).digest()[0]
        name = b"%d:%b%b" % (len(tenant), tenant, session)
        base = self._prefix + b":{b%d}:" % bucket
        return Names(
            bucket,
            base + b"session:" + name,
            base + b"events:" + name,
            base + b"messages:" + name,
            base + b"keys:" + name,
            base + b"tenant:" + tenant,
            base + b"calls:" + name,
            base + b"call_order:" + name,
            base + b"newest:" + name,
            base + b"runs:" + name,
            base + b"run_order:" + name,
            base + b"ready",
            base + b"sweep",
            base + b"leases",
            base + b"clocks",
            base + b"streams:" + name,
            base + b"all",
            in_order(tenant) + in_order(session),
            self.hint(bucket),
        )

    def user_list(self, bucket: int, tenant_id: str, user_id: str) -> bytes:
        """Sorted set of session ids by updated_at, for the bucket and the user."""
        tenant = tenant_id.encode()
        return self.of_bucket(bucket, b"user:%d:%b%b" % (len(tenant), tenant, user_id.encode()))

    def tenant_list(self, bucket: int, tenant_id: str) -> bytes:
        return self.of_bucket(bucket, b"tenant:" + tenant_id.encode())

    def buckets_of(self, tenant_id: str, user_id: str | None) -> bytes:
        """The set of the buckets that sessions of a tenant, or of a user, may lie in."""
        tenant = tenant_id.encode()
        name = (
            b"of_tenant:" + tenant if user_id is None else b"of_user:%d:%b%b" % (len(tenant), tenant, user_id.encode())
        )
        return self._prefix + b":{i%02x}:%b" % (hashlib.sha256(name).digest()[0], name)

    def pieces(self, ref: SessionRef, stream: bytes) -> bytes:
        """The list of pieces of one stream, which is named as ``stream_name`` does."""
        tenant, session = ref.tenant_id.encode(), ref.session_id.encode()
        bucket = self.names(ref).bucket
        name = b"%d:%b%d:%b%b" % (len(tenant), tenant, len(session), session, stream)
        return self.of_bucket(bucket, b"pieces:" + name)


def stream_name(key: StreamKey) -> bytes:
    return b"%d:%d:%b" % (key.attempt, key.message, key.run_id.encode())


def stream_of(name: bytes) -> StreamKey:
    attempt, message, run_id = name.split(b":", 2)
    return StreamKey(run_id.decode(), int(attempt), int(message))


def step_name(run_id: str, step: str) -> bytes:
    run = run_id.encode()
    return b"s%d:%b%b" % (len(run), run, step.encode())


def in_order(part: bytes) -> bytes:
    """Parts written so, one after another, compare as the parts themselves do, one after another."""
    return part.replace(b"\0", b"\0\xff") + b"\0\x01"


def refs_in(entry: bytes) -> SessionRef:
    tenant, _, rest = entry.partition(b"\0\x01")
    session = rest.removesuffix(b"\0\x01")
    return SessionRef(tenant.replace(b"\0\xff", b"\0").decode(), session.replace(b"\0\xff", b"\0").decode())
