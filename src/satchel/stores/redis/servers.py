"""Which server has a slot, and how commands get there: one server, or a cluster whose map is learned and learned anew.

``run`` gives each command its reply, in order. What is certain not to have been done (the server moved, is being elected, was
never reached) is tried again for as long as ``connect_timeout``; what may have been done is LOST.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError

from satchel.errors import SatchelError, StoreUnavailable
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.connection import (
    DRIVER_ERRORS,
    LOST,
    Command,
    Line,
    Reply,
    is_refusal,
    meaning_of,
    needs_password,
    remedy_for,
)
from satchel.stores.redis.pool import Pool
from satchel.stores.redis.replicas import NONE, Needed

SLOTS = 16_384
PAUSE = 0.05  # seconds between two tries, and up to twice that
FRESH_FOR = 1.0  # seconds after which a writer learns anew who follows whom
_ASKING = ("ASKING",)

_log = logging.getLogger("satchel.stores.redis")


class _Nothing(NamedTuple):
    """In the place of a reply: nothing was done. ``may_pass``: another try may help. ``is_elsewhere``: at another server, at once."""

    why: SatchelError
    may_pass: bool = True
    is_elsewhere: bool = False


class Servers:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._pools: dict[Place, Pool] = {}
        self._owners: list[Place] = [address.places[0]] * SLOTS  # of a single server all are its own
        self._replicas: dict[Place, list[Place]] = {}
        self._suspects: dict[Place, float] = {}  # who failed us, and when: asked last about the others
        self._learning: asyncio.Task[None] | None = None
        self._learned_at = 0.0
        self._away_since: float | None = None
        self._closed = False

    # Who is there

    @property
    def is_cluster(self) -> bool:
        return self._address.is_cluster

    def masters(self) -> list[Place]:
        return list(dict.fromkeys(self._owners))

    def replicas(self) -> list[Place]:
        """Those that a cluster's masters have."""
        return list(dict.fromkeys(place for places in self._replicas.values() for place in places))

    def owner(self, slot: int) -> Place:
        return self._owners[slot]

    def pool(self, place: Place) -> Pool:
        if place not in self._pools:
            self._pools[place] = Pool(self._address, place)
        return self._pools[place]

    def needed_replicas(self, place: Place) -> int:
        """How many must have a write of this master before it is acknowledged, as far as is known."""
        if self._address.replicas is not None:
            return self._address.replicas
        return len(self._replicas.get(place, ()))

    def needed(self, place: Place) -> Needed:
        return Needed(
            least=self.needed_replicas(place),
            asks_master=self.is_cluster and self._address.replicas is None,
            patience=max(1, int(self._address.replica_wait * 1000)),
        )

    async def open(self) -> None:
        """Raises SatchelErrors."""
        if self.is_cluster:
            await self.learn()

    async def close(self) -> None:
        self._closed = True
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait((self._learning,))
        for pool in self._pools.values():
            await pool.close()

    async def learn(self) -> None:
        """Where the slots are now. Several who ask at once are told the same. Raises StoreUnavailable."""
        learning = self._start_to_learn()
        await asyncio.wait((learning,))
        if not learning.cancelled() and (error := learning.exception()) is not None:
            raise error

    def _start_to_learn(self) -> asyncio.Task[None]:
        if self._learning is None or self._learning.done():
            self._learned_at = time.monotonic()
            self._learning = asyncio.get_running_loop().create_task(self._learn(), name="satchel-redis-slots")
            self._learning.add_done_callback(_forget_error)
        return self._learning

    def _note_suspect(self, place: Place) -> None:
        """It failed us: the others are asked first who has its slots now."""
        self._suspects[place] = time.monotonic()
        self._learned_at = 0.0

    async def _learn(self) -> None:
        refused: BaseException | None = None
        known = list(dict.fromkeys([*self._owners, *self._pools, *self._address.places]))
        random.shuffle(known)
        known.sort(key=lambda place: self._suspects.get(place, 0.0))  # who was cut off knows the others worst
        for place in known:
            try:
                heard: list[Reply] = []
                async with asyncio.timeout(min(2.0, self._address.connect_timeout)):
                    async with self.pool(place).use() as line:
                        await line.ask([("CLUSTER", "SLOTS")], heard)
            except (SatchelError, *DRIVER_ERRORS) as error:
                refused = error
                self._note_suspect(place)
                continue
            if isinstance(heard[0], Exception):
                refused = heard[0]
                continue
            if not heard[0]:
                continue
            self._read_slots(heard[0], place)
            return
        if refused is not None:
            raise meaning_of(refused) if not isinstance(refused, SatchelError) else refused
        raise StoreUnavailable("no server of the cluster has slots")

    def _read_slots(self, ranges: Sequence[Reply], asked: Place) -> None:
        """Replicas that the cluster holds for dead are not among them."""
        self._replicas = {}
        for first, last, *nodes in ranges:
            place, *replicas = [((node[0] or b"").decode() or asked[0], int(node[1])) for node in nodes]
            self._owners[first : last + 1] = [place] * (last - first + 1)
            self._replicas[place] = replicas

    # Commands

    async def run(self, commands: Sequence[Command], *, writes: bool = False) -> list[Reply]:
        """Their replies; an error of the server is a reply. Of a write that got no reply, or that too few replicas have, it is LOST;
        a read is tried again. Raises StoreBusy and StoreUnavailable if none of them was done."""
        if writes and self.is_cluster and time.monotonic() - self._learned_at > FRESH_FOR:
            _ = self._start_to_learn()  # a replica that came meanwhile is to be waited for too
        replies: list[Reply] = [None] * len(commands)
        left = list(range(len(commands)))
        trying_since: float | None = None
        while True:
            undone: list[_Nothing] = []
            again: list[int] = []
            for index, place, heard in await self._tell_all(commands, left, writes=writes):
                reply = await self._settled(commands[index], place, heard, writes=writes)
                replies[index] = reply
                if isinstance(reply, _Nothing):
                    undone.append(reply)
                    again.append(index)
            if not again:
                self._away_since = None
                return replies
            left = again
            now = time.monotonic()
            is_first, trying_since = trying_since is None, trying_since or now
            if all(nothing.is_elsewhere for nothing in undone):
                is_over = now - trying_since > self._address.connect_timeout
            else:
                self._away_since = self._away_since or now
                is_over = any(not nothing.may_pass for nothing in undone) or self._has_waited(trying_since, now)
                if not is_over and not is_first:
                    await asyncio.sleep(PAUSE * (1 + random.random()))  # noqa: S311  # spreads the tries
            if is_over:
                return _given_up(replies)
            if self.is_cluster:
                try:
                    await self.learn()
                except SatchelError as error:
                    _log.debug("the slots are not known: %s", error)

    async def _tell_all(
        self, commands: Sequence[Command], left: Sequence[int], *, writes: bool
    ) -> list[tuple[int, Place, Reply | _Nothing]]:
        """Of ``left``, each told the server that has its slot."""
        groups: dict[Place, list[int]] = {}
        for index in left:
            groups.setdefault(self._owners[commands[index].slot], []).append(index)
        told = [
            self._tell(place, [commands[index] for index in indices], writes=writes)
            for place, indices in groups.items()
        ]
        heard = [await told[0]] if len(told) == 1 else await asyncio.gather(*told)
        return [
            (index, place, reply)
            for (place, indices), replies in zip(groups.items(), heard, strict=True)
            for index, reply in zip(indices, replies, strict=True)
        ]

    async def _settled(
        self, command: Command, place: Place, reply: Reply | _Nothing, *, writes: bool
    ) -> Reply | _Nothing:
        """What is to be made of it: a reply, or that nothing was done."""
        if not isinstance(reply, Exception):
            return reply
        if reply is LOST:
            return LOST if writes else _Nothing(StoreUnavailable("the connection was lost"))
        remedy = remedy_for(reply)
        if remedy == "go there" and isinstance(reply, MovedError):
            self._owners[command.slot] = (reply.host or place[0], reply.port)
            return _Nothing(StoreUnavailable("the cluster sends us from one server to another"), is_elsewhere=True)
        if remedy == "ask there" and isinstance(reply, AskError):
            there = (reply.host or place[0], reply.port)
            asked = await self._ask_there(there, command, writes=writes)
            if isinstance(asked, AskError):
                return _Nothing(meaning_of(asked))  # they do not agree yet
            return await self._settled(command, there, asked, writes=writes)
        if remedy == "look again":
            return _Nothing(meaning_of(reply))
        return reply

    def _has_waited(self, trying_since: float, now: float) -> bool:
        """Whoever comes when it has been away for long is told at once."""
        since = min(trying_since, self._away_since or now)
        return self._closed or now - since >= self._address.connect_timeout

    async def _tell(self, place: Place, commands: Sequence[Command], *, writes: bool) -> list[Reply | _Nothing]:
        """A reply for each, or why nothing was done."""
        heard: list[Reply] = []
        words = [command.words for command in commands]
        needed = self.needed(place) if writes else NONE
        is_sent = False
        pool = self.pool(place)
        try:
            async with pool.use() as line:
                is_sent = True
                if not await self._ask(line, words, commands, heard, needed):
                    self._note_suspect(place)
        except SatchelError as error:
            return [_Nothing(error, may_pass=False)] * len(commands)
        except DRIVER_ERRORS as error:
            self._note_suspect(place)
            await pool.forget_idle()
            if not is_sent or needs_password(error):
                why = meaning_of(error)
                may_pass = isinstance(why, StoreUnavailable) and not is_refusal(error)
                return [_Nothing(why, may_pass=may_pass)] * len(commands)
            del heard[len(commands) :]
            if not needed.is_none:
                return [reply if _did_nothing(reply) else LOST for reply in heard] + [LOST] * (
                    len(commands) - len(heard)
                )
            return heard + [LOST] * (len(commands) - len(heard))
        return heard

    async def _ask(
        self,
        line: Line,
        words: Sequence[Sequence[bytes | str | int]],
        commands: Sequence[Command],
        heard: list[Reply],
        needed: Needed,
    ) -> bool:
        """False: too few replicas have it."""
        has_enough = await needed.tell(line, words, heard)
        missing = [
            index
            for index, reply in enumerate(heard)
            if isinstance(reply, Exception) and remedy_for(reply) == "load the script"
        ]
        if missing:
            scripts = list(dict.fromkeys(script for index in missing if (script := commands[index].script) is not None))
            loads = [("SCRIPT", "LOAD", script.text) for script in scripts]
            anew: list[Reply] = []
            has_enough &= await needed.tell(line, [*loads, *(words[index] for index in missing)], anew)
            for index, reply in zip(missing, anew[len(scripts) :], strict=True):
                heard[index] = reply
        if has_enough:
            return True
        heard[:] = [reply if _did_nothing(reply) else LOST for reply in heard]
        return False

    async def _ask_there(self, place: Place, command: Command, *, writes: bool) -> Reply:
        """The slot is on its way to another server."""
        heard: list[Reply] = []
        needed = self.needed(place) if writes else NONE
        words = command.words
        if command.script is not None:
            words = ("EVAL", command.script.text, *words[2:])
        try:
            async with self.pool(place).use() as line:
                has_enough = await needed.tell(line, [_ASKING, words], heard)
        except (SatchelError, *DRIVER_ERRORS):
            return LOST
        reply = heard[1]
        return reply if _did_nothing(reply) or has_enough else LOST


def _given_up(replies: list[Reply | _Nothing]) -> list[Reply]:
    """Raises why, if none of them was done."""
    undone = [reply for reply in replies if isinstance(reply, _Nothing)]
    if len(undone) == len(replies):
        raise undone[0].why
    return [reply.why if isinstance(reply, _Nothing) else reply for reply in replies]


def _forget_error(learning: asyncio.Task[None]) -> None:
    """Whoever waited for it has heard it."""
    if not learning.cancelled():
        learning.exception()


def _did_nothing(reply: Reply) -> bool:
    return isinstance(reply, Exception) and reply is not LOST


def slot_of(key: bytes) -> int:
    return int(key_slot(key))
