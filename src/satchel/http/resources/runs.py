"""``/v1/sessions/{id}/runs``: add, read, cancel; and what who executes a run itself says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from satchel.domain.json_text import NO_JSON, decode
from satchel.domain.run import STATUSES, Attempt, Run
from satchel.errors import InvalidInput
from satchel.http import given, shapes
from satchel.http.answers import Answer, encode, page_of, texts, written
from satchel.http.asgi import App
from satchel.http.call import Call
from satchel.http.parameters import CURSOR, LIMIT, Parameter
from satchel.http.resources.sessions import ONE, WRITE
from satchel.http.route import Route
from satchel.runs import LEASE

PATH = ONE + "/runs"
RUN = PATH + "/{run_id}"


class NewRun(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    goal: str = ""
    agent: str | None = None
    input: msgspec.Raw = NO_JSON
    on_busy: Literal["reject", "queue", "cancel"] = "reject"
    max_attempts: int = 1
    memory: Literal["session", "run"] = "session"
    metadata: msgspec.Raw = NO_JSON
    start: bool = False
    lease: float = LEASE
    expected_version: int | None = None


class NewChild(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    goal: str
    agent: str = ""
    metadata: msgspec.Raw = NO_JSON
    expected_version: int | None = None


class Start(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    lease: float = LEASE
    expected_version: int | None = None


class Cancel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str = "cancelled"
    expected_version: int | None = None


class AnswerToQuestion(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    answer: msgspec.Raw
    name: str | None = None
    expected_version: int | None = None


class Step(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    duration_ms: int | None = None
    error: str | None = None
    expected_version: int | None = None


class Completed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    stop_reason: str = "end_turn"
    expected_version: int | None = None


class Cancelled(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    stop_reason: str = "cancelled"
    expected_version: int | None = None


class Failed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    code: str
    message: str = ""
    stop_reason: str = "error"
    expected_version: int | None = None


class Empty(msgspec.Struct, forbid_unknown_fields=True):
    """No members."""


class Nothing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    expected_version: int | None = None


def input_of(raw: msgspec.Raw) -> Any:
    """A JSON text is what a user said; an object is a chat message, kept as received."""
    body = bytes(raw)
    if body in (b"", b"null"):
        return None
    return decode(body) if body[:1] == b'"' else body


def run_answer(run: Run) -> Answer:
    return written(run.to_json(), run.version, replayed=run.replayed)


def added(call: Call, run: Run, *, hint: str | None = None) -> Answer:
    """``hint`` is a header: the body is the run as it was first answered, however often it is asked for under its key."""
    headers = [call.location(run.session_id, run.run_id)]
    if hint is not None:
        headers.append((b"satchel-hint", hint.encode("ascii", "backslashreplace")))
    return written(run.to_json(), run.version, replayed=run.replayed, status=201, headers=headers)


async def add(call: Call) -> App:
    given = await call.fields(NewRun)
    metadata: Any = bytes(given.metadata) or None
    agent = "" if given.agent is None and given.start else given.agent  # who starts it at once is its agent
    run = await call.add_run(
        call.session_id,
        goal=given.goal,
        agent=agent,
        input=input_of(given.input),
        on_busy=given.on_busy,
        max_attempts=given.max_attempts,
        memory=given.memory,
        metadata=metadata,
        start=given.start,
        lease=given.lease,
        **call.write(given.expected_version),
    )
    elsewhere = call.service.elsewhere
    is_unknown = not given.start and elsewhere.is_unknown(run.agent)  # who starts it needs nobody else
    return added(call, run, hint=elsewhere.hint(run) if is_unknown else None)


async def add_child(call: Call) -> App:
    given = await call.fields(NewChild)
    metadata: Any = bytes(given.metadata) or None
    run = await call.runs.add_child_run(
        call.session_id,
        attempt_of(call),
        goal=given.goal,
        agent=given.agent,
        metadata=metadata,
        **call.write(given.expected_version),
    )
    return added(call, run)


async def read_all(call: Call) -> App:
    page = await call.runs.list_runs(call.session_id, **call.query)
    return page_of(texts(page), page.next, "" if page.next is None else call.url(cursor=page.next))


async def read(call: Call) -> App:
    run = await call.runs.get_run(call.session_id, call.path["run_id"])
    return Answer(run.to_json())


async def cancel(call: Call) -> App:
    given = await call.fields(Cancel)
    run = await call.runs.cancel_run(
        call.session_id, call.path["run_id"], reason=given.reason, **call.write(given.expected_version)
    )
    return run_answer(run)


async def answer(call: Call) -> App:
    given = await call.fields(AnswerToQuestion)
    run = await call.runs.answer_run(
        call.session_id, call.path["run_id"], given.answer, name=given.name, **call.write(given.expected_version)
    )
    return run_answer(run)


# -- of who executes a run itself


async def start(call: Call) -> App:
    given = await call.fields(Start)
    run = await call.runs.start_run(
        call.session_id, call.path["run_id"], lease=given.lease, **call.write(given.expected_version)
    )
    call.service.elsewhere.begun(run)
    return run_answer(run)


async def keep_waiting(call: Call) -> App:
    await call.fields(Empty)
    return run_answer(await call.runs.keep_waiting(call.session_id, call.path["run_id"]))


async def renew(call: Call) -> App:
    await call.fields(Empty)
    cancel_requested = await call.runs.renew_run(call.session_id, attempt_of(call))
    return Answer(encode({"cancel_requested": cancel_requested}))


def attempt_of(call: Call) -> Attempt:
    """The attempt of the header, which must be one of the run of the address."""
    attempt = call.attempt
    if attempt is None:
        raise InvalidInput("is needed: RUN_ID/ATTEMPT, as the run's start answered", field="attempt")
    if attempt.run_id != call.path["run_id"]:
        raise InvalidInput("is of another run than the address", field="attempt")
    return attempt


def _reporter(method: str, shape: type[msgspec.Struct]) -> Callable[[Call], Awaitable[App]]:
    async def report(call: Call) -> App:
        given = msgspec.structs.asdict(await call.fields(shape))
        expected_version = given.pop("expected_version")
        verb = getattr(call.runs, method)
        return run_answer(await verb(call.session_id, attempt_of(call), **given, **call.write(expected_version)))

    return report


def work_route(
    verb: str,
    name: str,
    about: str,
    handler: Any,
    body: Any,
    *,
    required: bool = False,
    status: int = 200,
    answer: Any = shapes.Run,
) -> Route:
    return Route(
        method="POST",
        path=f"{RUN}/{verb}",
        name=name,
        about=about,
        handler=handler,
        body=body,
        body_required=required,
        answers={status: answer},
        errors=(403, 404, 410, 409) if name in _WITHOUT_KEY else (403, 404, 410, *WRITE),
        is_write=name not in _WITHOUT_KEY,
        attempt="must" if name in _BY_ATTEMPT else None,
    )


# They change no version, or are told apart by what they say: no key, no condition.
_WITHOUT_KEY = frozenset({"keep_waiting", "renew_run", "add_text", "end_text"})
_BY_ATTEMPT = frozenset(
    {
        "add_child_run",
        "add_step",
        "add_text",
        "ask_question",
        "complete_run",
        "end_cancelled_run",
        "end_text",
        "fail_run",
        "hand_back_run",
        "renew_run",
    }
)

ROUTES = (
    Route(
        method="GET",
        path=PATH,
        name="list_runs",
        about="Runs, newest first.",
        handler=read_all,
        query=(
            Parameter(name="status", kind="choice", about="Only runs of this status.", choices=STATUSES),
            Parameter(name="run_id", kind="text", about="Only this one.", least=1),
            Parameter(name="parent_run_id", kind="text", about="Only child runs of this one.", least=1),
            msgspec.structs.replace(LIMIT, default=50),
            CURSOR,
        ),
        answers={200: shapes.RunPage},
        errors=(400, 404, 410),
    ),
    Route(
        method="POST",
        path=PATH,
        name="add_run",
        about="Add a run, with the message that it answers. Without `agent` it is the server's default one's; with"
        " `start` the caller executes it itself. When nobody is known to execute its agent's runs, or it names none, the header `Satchel-Hint` says so.",
        handler=add,
        body=given.NewRun,
        body_required=False,
        answers={201: shapes.Run},
        errors=(403, 404, 410, *WRITE),
        is_write=True,
    ),
    Route(
        method="GET",
        path=RUN,
        name="get_run",
        about="One run.",
        handler=read,
        answers={200: shapes.Run},
        errors=(404, 410),
    ),
    work_route("cancel", "cancel_run", "End a run that waits; ask a running one to stop.", cancel, given.CancelRun),
    work_route(
        "answer",
        "answer_run",
        "Answer what a WAITING run asked, with any JSON value: it goes on.",
        answer,
        given.AnswerToQuestion,
        required=True,
    ),
    work_route("start", "start_run", "Claim a READY run that has the turn.", start, given.StartRun),
    work_route(
        "children",
        "add_child_run",
        "A part of this run, RUNNING under its attempt and lease.",
        add_child,
        given.NewChild,
        required=True,
        status=201,
    ),
    work_route(
        "wait", "keep_waiting", "Renew the lease of a run that waits for its client.", keep_waiting, given.Empty
    ),
    work_route(
        "renew",
        "renew_run",
        "Move the lease on; tells whether the run was asked to stop.",
        renew,
        given.Empty,
        answer=shapes.CancelRequested,
    ),
    work_route(
        "steps",
        "add_step",
        "One model call, with its tokens.",
        _reporter("add_step", Step),
        given.RunStep,
        required=True,
    ),
    work_route("complete", "complete_run", "COMPLETED.", _reporter("complete_run", Completed), given.CompleteRun),
    work_route("fail", "fail_run", "FAILED, with a code.", _reporter("fail_run", Failed), given.FailRun, required=True),
    work_route(
        "end-cancelled",
        "end_cancelled_run",
        "CANCELLED, by the attempt that was asked to stop.",
        _reporter("end_cancelled_run", Cancelled),
        given.EndCancelledRun,
    ),
    work_route(
        "hand-back",
        "hand_back_run",
        "READY again if it has attempts left, else FAILED.",
        _reporter("hand_back_run", Nothing),
        given.Nothing,
    ),
)
