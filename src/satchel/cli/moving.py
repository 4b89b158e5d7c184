"""What ``satchel copy`` does, and tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import satchel
from satchel import OpenStore, SatchelError, StoreError
from satchel.cli import output, sentences
from satchel.cli.failures import CopyDiffers, CopyIncomplete
from satchel.cli.progress import bar
from satchel.cli.store import new_file, say_made
from satchel.domain.ids import SessionRef
from satchel.http.keys import SETTING
from satchel.http.moved_keys import MovedKeys, count_left, move_keys
from satchel.transfer.copying import Copied
from satchel.transfer.moving import Failed, Move, Sum

AGAIN = "satchel: the same command goes on where this one stopped"


@dataclass(frozen=True, kw_only=True)
class Problem:
    ref: SessionRef
    result: str  # differs, failed, unproved
    reason: str

    def to_dict(self) -> dict[str, str]:
        return {
            "tenant_id": self.ref.tenant_id,
            "session_id": self.ref.session_id,
            "result": self.result,
            "reason": self.reason,
        }


@dataclass(kw_only=True)
class Tally:
    results: Counter[str] = field(default_factory=Counter)
    was_open: int = 0
    keys: MovedKeys | None = None
    keys_left: int = 0
    of_tenant: bool = False
    problems: list[Problem] = field(default_factory=list)
    verified: Sum = field(default_factory=Sum)

    def meet(self, ref: SessionRef, result: str, reason: str) -> None:
        problem = Problem(ref=ref, result=result, reason=reason)
        self.problems.append(problem)
        output.say(f"satchel: {ref.session_id} of {ref.tenant_id} {_SAID[result]}: {reason}")

    def count(self, result: str) -> int:
        return sum(problem.result == result for problem in self.problems)


_KEYS = {
    "none": "none",
    "copied": "{added:,} copied",
    "updated": "{added:,} new, {revoked:,} revoked",
    "exists": "there already",
}
_SAID = {"differs": "was left", "failed": "was not copied", "unproved": "is not what was copied"}


async def copy_all(source_url: str, target_url: str, tenant: str | None, *, settings: bool) -> Tally:
    tally = Tally(of_tenant=tenant is not None)
    made = new_file(target_url)
    async with satchel.open(source_url) as source, satchel.open(target_url) as target:
        say_made(made)
        move = Move(source, target, tenant_id=tenant)
        try:
            total = await move.count()
            if tenant is not None:  # a variable may have said so
                output.say(f"satchel: only what is of tenant {tenant}")
            with bar("copying", total=total) as progress:
                done = 0
                async for one in move.copy():
                    _note(tally, one)
                    done += 1
                    progress.reach(done)
            await _verify(move, tally)
            if settings:
                await _move_keys(source, target, tally)
            else:
                with contextlib.suppress(StoreError):  # the sessions are there, and proved
                    tally.keys_left = await count_left(source, target, tenant_id=tenant)
        except (asyncio.CancelledError, SatchelError):
            output.say(AGAIN)
            raise
        finally:
            move.close()
        tally.verified = move.sum
    return tally


def _note(tally: Tally, one: Copied | Failed) -> None:
    if isinstance(one, Failed):
        tally.meet(one.ref, "failed", str(one.error))
        return
    tally.results[one.result] += 1
    if one.result == "differs":
        tally.meet(one.ref, "differs", one.reason)
    elif one.was_open and one.result != "exists":
        tally.was_open += 1


async def _verify(move: Move, tally: Tally) -> None:
    kept = sum(tally.results[result] for result in ("copied", "continued", "exists", "tombstone"))
    with bar("verifying", total=kept) as progress:
        done = 0
        async for copied, proof in move.verify():
            done += 1
            progress.reach(done)
            if isinstance(proof, Failed):
                tally.meet(copied.ref, "unproved", str(proof.error))
            elif not proof.holds and copied.result == "exists":
                tally.meet(copied.ref, "differs", "its title, metadata, memory or rows are others")
            elif not proof.holds:
                tally.meet(copied.ref, "unproved", "it was changed or deleted at the destination meanwhile")


async def _move_keys(source: OpenStore, target: OpenStore, tally: Tally) -> None:
    tally.keys = moved = await move_keys(source, target)
    if number := moved.only_there:
        output.say(
            f"satchel: {sentences.count(number, 'API key')} {'stands' if number == 1 else 'stand'} at the destination alone,"
            " and still answer there: `satchel keys list` shows them, `satchel keys revoke` ends one"
        )


def tell(tally: Tally, *, json: bool) -> None:
    """Raises CopyIncomplete, CopyDiffers."""
    if json:
        output.write_json(_document(tally))
    else:
        output.write_text(_sentence(tally))
    incomplete = tally.count("failed") + tally.count("unproved")
    if incomplete:
        raise CopyIncomplete(f"{sentences.count(incomplete, 'session')} could not be copied or proved, named above")
    if differing := tally.count("differs"):
        raise CopyDiffers(differing)


def _document(tally: Tally) -> dict[str, Any]:
    verified = tally.verified
    return {
        "copied": tally.results["copied"],
        "continued": tally.results["continued"],
        "exists": tally.results["exists"],
        "tombstones": tally.results["tombstone"],
        "unfinished": tally.results["unfinished"],
        "were_open": tally.was_open,
        "settings": {} if tally.keys is None else {SETTING: tally.keys},
        "api_keys_left": tally.keys_left,
        "differs": tally.count("differs"),
        "failed": tally.count("failed"),
        "unproved": tally.count("unproved"),
        "verified": {
            "sessions": verified.sessions,
            "tombstones": verified.tombstones,
            "events": verified.events,
            "messages": verified.messages,
            "ahead": verified.ahead,
            "digest": {"source": verified.source, "destination": verified.destination},
            "equal": verified.source == verified.destination,
        },
        "problems": [problem.to_dict() for problem in tally.problems],
    }


def _sentence(tally: Tally) -> str:
    results, verified = tally.results, tally.verified
    parts = [f"{sentences.count(results['copied'], 'session')} copied"]
    for number, what in (
        (results["continued"], "continued"),
        (results["exists"], "there already"),
        (results["tombstone"], "tombstone" if results["tombstone"] == 1 else "tombstones"),
        (results["unfinished"], "unfinished and left out"),
        (tally.was_open, "had something open, which arrived as failed"),
        (tally.count("differs"), "left: something else stands there"),
        (tally.count("failed"), "failed"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    if tally.keys is not None:
        keys = tally.keys
        parts.append(f"API keys: {_KEYS[keys.result].format(added=keys.added, revoked=keys.revoked)}")
    if tally.keys_left:
        why = "a copy of one tenant takes none along" if tally.of_tenant else "--settings takes them along"
        parts.append(f"{sentences.count(tally.keys_left, 'API key')} not copied ({why})")
    is_equal = verified.source == verified.destination
    proof = f"verified: {sentences.count(verified.sessions, 'session')}, {sentences.count(verified.events, 'event')}"
    proof += f", {sentences.count(verified.messages, 'message')}, {sentences.count(verified.tombstones, 'tombstone')}"
    digest = f"digest {verified.source[:16]} at both sides" if is_equal else "digests differ"
    ahead = f"; {verified.ahead:,} went on at the destination" if verified.ahead else ""
    return f"{'; '.join(parts)}\n{proof}; {digest}{ahead}"
