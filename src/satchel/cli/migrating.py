"""``satchel migrate``."""

from __future__ import annotations

from typing import Any

import satchel
from satchel import SchemaMismatch
from satchel.cli import flags, output, sentences
from satchel.cli.failures import StoreNotShared
from satchel.cli.store import check_there, new_file, run_async, say_made
from satchel.domain.clock import rfc3339, to_datetime
from satchel.store import Schema


def show_schema(*, store: flags.OperatorsStore, json: flags.Json = False) -> None:
    """Show which schema a store has, and the steps to the newest that this program knows. Changes nothing.

    A database that is newer than this program is refused: the exit code is 5.
    """
    _check(store)
    check_there(store)
    schema = run_async(_schema(store))
    if json:
        output.write_json(_document(schema))
    else:
        output.write_text(_status(schema))
        for step in () if schema is None else schema.steps:
            when = "to come" if step.applied_at is None else f"applied {sentences.moment(to_datetime(step.applied_at))}"
            output.write_text(f"{step.number:>4}  {step.name}  {when}  {step.about}")
    _refuse_newer(schema)


def bring_up(*, store: flags.NewStore, json: flags.Json = False) -> None:
    """Bring a store's schema up to date, step by step, forward only.

    Every program does the same when it opens the store, and any number may do it at once: each step is done once. Do it
    beforehand where the programs' own account may make no tables.
    """
    _check(store)
    made = new_file(store)
    before, after = run_async(_up(store))
    say_made(made, json=json)
    applied = () if before is None else before.pending
    if json:
        output.write_json(_document(after) | {"applied": [step.number for step in applied]})
        return
    for step in applied:
        output.write_text(f"{step.number:>4}  {step.name}  {step.about}")
    output.write_text(_status(after))


def print_sql(*, store: flags.NewStore, all_steps: flags.AllSteps = False) -> None:
    """Print the SQL of the steps that a store lacks (of Redis: the commands), for its shell: psql, mariadb, sqlite3, redis-cli.
    Changes nothing."""
    _check(store)
    schema = run_async(_schema(store))
    _refuse_newer(schema)
    if schema is None:
        output.write_text("-- this store keeps no schema: there is nothing to run")
        return
    steps = schema.steps if all_steps else schema.pending
    if not steps:
        _remark(schema, f"nothing to do: the database has schema {schema.found}, the newest")
    for step in steps:
        _remark(schema, f"step {step.number}: {step.name}")
        output.write_text(step.sql)


def _remark(schema: Schema, text: str) -> None:
    """For who reads it; where the shell takes no comments, beside what the shell is given."""
    if schema.comment:
        output.write_text(f"{schema.comment} {text}")
    else:
        output.say(f"satchel: {text}")


def _check(url: str) -> None:
    if url.startswith("memory:"):
        raise StoreNotShared


async def _schema(url: str) -> Schema | None:
    return await satchel.open(url).store.schema()


async def _up(url: str) -> tuple[Schema | None, Schema | None]:
    store = satchel.open(url)
    before = await store.store.schema()
    async with store:
        pass  # to open it brings it up to date
    return before, await store.store.schema()


def _refuse_newer(schema: Schema | None) -> None:
    if schema is not None and schema.found > schema.known:
        raise SchemaMismatch(found=schema.found, known=schema.known)


def _status(schema: Schema | None) -> str:
    if schema is None:
        return "this store keeps no schema: there is nothing to bring up to date"
    if schema.found > schema.known:
        return f"schema {schema.found}, newer than this program, which knows {schema.known}"
    if not schema.pending:
        return f"schema {schema.found}, up to date"
    have = f"schema {schema.found}" if schema.found else "no schema yet"
    return f"{have}; {sentences.count(len(schema.pending), 'step')} to come: satchel migrate up"


def _document(schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        return {"found": None, "known": None, "up_to_date": True, "steps": []}
    return {
        "found": schema.found,
        "known": schema.known,
        "up_to_date": schema.found == schema.known,
        "steps": [
            {
                "number": step.number,
                "name": step.name,
                "about": step.about,
                "applied_at": None if step.applied_at is None else rfc3339(step.applied_at),
            }
            for step in schema.steps
        ],
    }
