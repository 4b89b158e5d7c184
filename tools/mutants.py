"""Break a promise of the domain in one place, and see that the tests notice: ``make mutants``.

Each mutant is a small edit of a copy of the tree. The tests named with it must fail there. A mutant that survives is a
promise that nobody holds; a mutant whose text is no longer found is an edit of this file that is due.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "pyproject.toml")
TESTS = ("tests/conformance", "tests/property")
SQLITE_TESTS = ("tests/conformance/test_sqlite.py",)
SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Edit:
    path: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = TESTS


def one(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name=name, edits=(Edit(path=path, old=old, new=new),))


MUTANTS = (
    one(
        "no version check",
        "src/satchel/domain/decisions/decision.py",
        "if self.expected_version is not None and self.expected_version != record.version:",
        "if self.expected_version is not None and self.expected_version < 0:",
    ),
    one(
        "no owner check",
        "src/satchel/domain/rights.py",
        "return user_id is None or user_id == record.user_id",
        "return True",
    ),
    one(
        "no idempotency record",
        "src/satchel/commit/fold.py",
        "        if decision.key is None:\n            return\n        record = IdempotencyRecord",
        "        if decision.key is not None:\n            return\n        record = IdempotencyRecord",
    ),
    Mutant(
        name="insert-or-ignore of the idempotency record, without looking first",
        edits=(
            Edit(
                path="src/satchel/stores/memory/kept.py",
                old="keys={key: self.keys[key] for key in want.keys if key in self.keys},",
                new="keys={},",
            ),
            Edit(
                path="src/satchel/stores/memory/kept.py",
                old="self.keys.update(keys)",
                new="self.keys = keys | self.keys",
            ),
        ),
    ),
    Mutant(
        name="SQLite takes a key for new, and nothing says that it is not",
        edits=(
            Edit(
                path="src/satchel/stores/sqlite/queries.sql",
                old="INSERT INTO idempotency_records",
                new="INSERT OR IGNORE INTO idempotency_records",
            ),
        ),
        tests=SQLITE_TESTS,
    ),
    Mutant(
        name="SQLite takes a key for new, and believes a refusal",
        edits=(
            Edit(
                path="src/satchel/stores/sqlite/writer.py",
                old="if not look and not _leaves_all(wanted, changes):",
                new="if not look and not wanted:",
            ),
        ),
        tests=SQLITE_TESTS,
    ),
    one(
        "idempotency keys without their side",
        "src/satchel/domain/idempotency.py",
        "return hashlib.sha256(side + key.encode()).digest()[:16]",
        "return hashlib.sha256(key.encode()).digest()[:16]",
    ),
    one(
        "not_after is ignored",
        "src/satchel/stores/memory/store.py",
        "if revision != change.base or (change.not_after is not None and now >= change.not_after):",
        "if revision != change.base or now < 0:",
    ),
    Mutant(
        name="the version is compared instead of the revision",
        edits=(
            Edit(
                path="src/satchel/stores/memory/store.py",
                old="revision = None if kept is None else kept.record.revision",
                new="revision = None if kept is None else kept.record.version",
            ),
            Edit(
                path="src/satchel/commit/fold.py",
                old="self.base = None if state.record is None else state.record.revision",
                new="self.base = None if state.record is None else state.record.version",
            ),
        ),
        tests=("tests/conformance/test_interleavings.py",),
    ),
    one(
        "the answer comes before the commit",
        "src/satchel/commit/fold.py",
        "                self.results.append(self._decide(waiting.decision, waiting.unsettled, clock))\n",
        "                self.results.append(self._decide(waiting.decision, waiting.unsettled, clock))\n"
        "                waiting.answer(self.results[-1])\n",
    ),
    one(
        "a call that finds its own commit is told of what came after it",
        "src/satchel/commit/fold.py",
        "replayed=False), kept.answer, found=True)",
        "replayed=False), kept.answer)",
    ),
    one(
        "the expiry comes before the owner check",
        "src/satchel/commit/fold.py",
        "if record is not None and not record.hidden and may_see(decision.principal, record):",
        "if record is not None and not record.hidden:",
    ),
    one(
        "a stale attempt may write",
        "src/satchel/domain/decisions/decision.py",
        "turn.run_id == attempt.run_id and turn.attempt == attempt.attempt",
        "turn.run_id == attempt.run_id",
    ),
    one(
        "an answered question is asked again",
        "src/satchel/domain/decisions/questions.py",
        "if known is not None:",
        "if known is None and row.attempt < 0:",
    ),
    one(
        "an answer is not held against its question's schema",
        "src/satchel/domain/decisions/questions.py",
        "if self.refusal is not None:",
        "if self.refusal is not None and row.attempt < 0:",
    ),
    one(
        "a question that expires bounds no commit",
        "src/satchel/commit/fold.py",
        "self.not_after = due",
        "self.not_after = record.turns_at",
    ),
    one(
        "idle time counts from who met the expired question",
        "src/satchel/domain/decisions/questions.py",
        'edit.fields["active_at"] = max(state.existing.active_at, turn.expires_at)',
        "pass",
    ),
    one(
        "going on after an answer is a lost attempt",
        "src/satchel/domain/run.py",
        "return self.attempt - len(self.answered) < self.max_attempts",
        "return self.attempt < self.max_attempts",
    ),
    one(
        "a named tool call is made again",
        "src/satchel/domain/decisions/tool_calls.py",
        'if row is None or self.step is None or row.status in ("cancelled", "unknown"):',
        'if row is None or self.step is None or row.status != "started":',
    ),
    one(
        "a closed session takes writes",
        "src/satchel/domain/decisions/decision.py",
        '    if record.status == "CLOSED":\n        raise SessionClosed(record.session_id)\n',
        "",
    ),
    one(
        "users may write system messages",
        "src/satchel/domain/decisions/messages.py",
        "    elif role in INSTRUCTION_ROLES:\n",
        '    elif role == "none":\n',
    ),
    Mutant(
        name="a tool that may have run is run again",
        edits=(
            Edit(
                path="src/satchel/engines/chat/engine.py",
                old="if call.may_have_happened and (tool is None or not tool.repeatable):",
                new="if call.tool_call_id is None:",
            ),
        ),
        tests=("tests/engines/test_chat_again.py",),
    ),
    Mutant(
        name="an answer that is there is asked for again",
        edits=(
            Edit(
                path="src/satchel/engines/chat/messages.py",
                old="        story.last = Said(seq=message.seq, calls=tuple(_calls_of(body)))",
                new="        story.last = None",
            ),
        ),
        tests=("tests/engines/test_chat_again.py",),
    ),
    Mutant(
        name="an endpoint's error quotes the key",
        edits=(
            Edit(
                path="src/satchel/engines/chat/model.py",
                old='return text if self._api_key == "none" else text.replace(self._api_key, "(the key)")',
                new="return text",
            ),
        ),
        tests=("tests/engines/test_chat_faults.py",),
    ),
    Mutant(
        name="a call runs before anybody approved it",
        edits=(
            Edit(
                path="src/satchel/engines/chat/engine.py",
                old="return tool is not None and tool.needs_approval and asked.parsed() is not None",
                new="return False",
            ),
        ),
        tests=("tests/engines/test_chat_approvals.py",),
    ),
    Mutant(
        name="an error at the COMMIT of MySQL means that nothing was stored",
        edits=(
            Edit(
                path="src/satchel/stores/mysql/writing.py",
                old="            raise CommitFailed from error",
                new="            pass",
            ),
        ),
        tests=("tests/stores/test_mysql.py",),
    ),
    Mutant(
        name="MySQL locks no session",
        edits=(
            Edit(
                path="src/satchel/stores/mysql/queries.sql",
                old="ORDER BY tenant_id, session_id\nFOR UPDATE;",
                new="ORDER BY tenant_id, session_id;",
            ),
        ),
        tests=("tests/stores/test_mysql.py",),
    ),
    Mutant(
        name="a gap of MySQL is locked where a session is missing",
        edits=(
            Edit(
                path="src/satchel/stores/mysql/connection.py",
                old="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                new="SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            ),
        ),
        tests=("tests/stores/test_mysql.py",),
    ),
    Mutant(
        name="a copy takes any log for its own beginning",
        edits=(
            Edit(
                path="src/satchel/transfer/beside.py",
                old="if mine != other:",
                new="if mine.seq != other.seq:",
            ),
        ),
        tests=("tests/conformance/test_memory.py",),
    ),
    Mutant(
        name="a copy takes any end at the destination for one that nobody wrote",
        edits=(
            Edit(
                path="src/satchel/transfer/beside.py",
                old="return not end or is_closing(end)",
                new="return True",
            ),
        ),
        tests=("tests/conformance/test_memory.py",),
    ),
    Mutant(
        name="an import takes any session of the name for its own",
        edits=(
            Edit(
                path="src/satchel/transfer/importing.py",
                old='return self._report("differs" if reason else "exists", there, reason)',
                new='return self._report("exists", there)',
            ),
        ),
        tests=("tests/conformance/test_memory.py",),
    ),
    Mutant(
        name="a copy of the keys forgets what was revoked",
        edits=(
            Edit(
                path="src/satchel/http/moved_keys.py",
                old="if key.key_id not in revoked]",
                new="if key.key_id]",
            ),
        ),
        tests=("tests/cli/test_cli_copy.py",),
    ),
    Mutant(
        name="a copy takes the place of any tombstone",
        edits=(
            Edit(
                path="src/satchel/domain/decisions/imports.py",
                old='return record.status == "DELETED" and not (record.lifecycle and record.lifecycle[-1].to == "DELETED")',
                new='return record.status == "DELETED"',
            ),
        ),
        tests=("tests/conformance/test_memory.py",),
    ),
    Mutant(
        name="tombstones stay behind",
        edits=(
            Edit(
                path="src/satchel/transfer/copying.py",
                old="return await _copy_tombstone(source, target, ref)",
                new='return Copied(ref=ref, result="unfinished")',
            ),
        ),
        tests=("tests/conformance/test_memory.py",),
    ),
    Mutant(
        name="a copy is proved without its rows",
        edits=(
            Edit(
                path="src/satchel/transfer/portrait.py",
                old="async for row in _rows(store, record, frame):",
                new="async for row in _rows(store, record, Frame(frame.last, -1, frame.is_whole)):",
            ),
        ),
        tests=("tests/cli/test_cli_copy.py",),
    ),
    Mutant(
        name="many are deleted though they changed since they were listed",
        edits=(Edit(path="src/satchel/cli/choosing.py", old="version = listed.version", new="version = None"),),
        tests=("tests/cli/test_cli_delete.py",),
    ),
    Mutant(
        name="a variable begins a deletion of many",
        edits=(
            Edit(
                path="src/satchel/cli/deleting.py",
                old="if not any(is_typed(name) for name in given):",
                new="if not given:",
            ),
        ),
        tests=("tests/cli/test_cli_delete.py",),
    ),
    Mutant(
        name="a step of the schema is taken by everybody who started",
        edits=(
            Edit(
                path="src/satchel/stores/sqlite/schema.py",
                old="if schema_of(connection) == found:  # else another process was first",
                new="if found >= 0:",
            ),
        ),
        tests=("tests/cli/test_cli_migrate.py",),
    ),
    Mutant(
        name="the doctor asks a connection that only reads",
        edits=(
            Edit(
                path="src/satchel/stores/sqlite/store.py",
                old="self._live().writer.run(lambda writer: checking.check(writer.connection, self._path))",
                new="self._read(lambda connection, clock: checking.check(connection, self._path))",
            ),
        ),
        tests=("tests/cli/test_cli_doctor.py",),
    ),
)


def tree(folder: Path) -> Path:
    copy = folder / "tree"
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / name)
    return copy


def apply(copy: Path, mutant: Mutant) -> None:
    for edit in mutant.edits:
        file = copy / edit.path
        text = file.read_text("utf-8")
        if text.count(edit.old) != 1:
            raise SystemExit(
                f"mutant {mutant.name!r}: its text is {text.count(edit.old)} times in {edit.path}, not once"
            )
        file.write_text(text.replace(edit.old, edit.new), "utf-8")


def run_tests(copy: Path, tests: str) -> tuple[int, str]:
    """The exit code of pytest, and its last lines."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "2",
        "-m",
        "not full",
        tests,
    ]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, "\n".join(done.stdout.splitlines()[-12:]) + done.stderr[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    parser.add_argument("--only", metavar="TEXT", help="mutants whose name contains this")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not options.only or options.only in mutant.name]
    results: list[dict[str, object]] = []
    for number, mutant in enumerate(chosen, 1):
        began = time.monotonic()
        code, output = 0, ""
        print(f"[{number}/{len(chosen)}] {mutant.name} … ", end="", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            copy = tree(Path(folder))
            apply(copy, mutant)
            for tests in mutant.tests:  # the slower ones are asked only if the others noticed nothing
                code, output = run_tests(copy, tests)
                if code != 0:
                    break
        noticed = code == 1 or (code == 2 and " failed" in output)  # xdist ends with 2 at the first failure
        if code != 0 and not noticed:
            raise SystemExit(f"the tests could not run (pytest says {code}):\n{output}")
        results.append({"name": mutant.name, "noticed": noticed, "seconds": round(time.monotonic() - began, 1)})
        print("noticed" if noticed else "SURVIVED", file=sys.stderr, flush=True)
    survived = [result["name"] for result in results if not result["noticed"]]
    if options.json:
        print(json.dumps({"mutants": results}))
    else:
        print(f"{len(results) - len(survived)} of {len(results)} mutants noticed")
        for name in survived:
            print(f"survived: {name}")
    return 1 if survived or not results else 0


if __name__ == "__main__":
    sys.exit(main())
