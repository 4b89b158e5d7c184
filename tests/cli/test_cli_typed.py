"""What stands on the command line goes before what stands in variables, for every flag of every command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, cast, get_args, get_origin

import pytest
from cyclopts import App, Argument

from satchel.cli.commands import make_app
from satchel.cli.typed import RIVALS
from tests.cli.shell import STORE, Cli, make_session, work_on_a_session


def commands(app: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Argument]]]:
    names = [name for name in app if not name.startswith("-")]
    if not names:
        yield chain, [one for one in app.assemble_argument_collection() if one.parse]
    for name in names:
        yield from commands(app[name], (*chain, name))


APP = make_app()
COMMANDS = dict(commands(APP))


def two_values(argument: Argument) -> tuple[str, str]:
    hint: Any = argument.hint
    kinds = [one for one in get_args(hint) if one is not type(None)] or [hint]
    if argument.name == "--metadata":
        return "a=1", "a=2"
    if argument.name == "--agent":
        return "m:a", "m:b"
    for kind in kinds:
        if get_origin(kind) is Literal or isinstance(kind, str):
            choices = [str(one) for one in (get_args(kind) or kinds)]
            return choices[0], choices[1]
        if kind is bool:
            return "true", "false"
        if kind in (int, float):
            return "1", "2"
        if kind is datetime:
            return "2026-01-01", "2026-01-02"
    return "one", "two"


def parsed(chain: tuple[str, ...], words: list[str]) -> dict[str, Any]:
    _, bound, _ = APP.parse_args([*chain, *words], exit_on_error=False, print_error=False)
    return dict(bound.arguments)


QUICK = (("sessions", "list"), ("chat",), ("copy",))


@pytest.mark.parametrize(
    "chain", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.full) for one in COMMANDS], ids="-".join
)
def test_a_flag_wins_over_its_variable(chain: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("SATCHEL_STORE", "SATCHEL_TENANT"):
        monkeypatch.delenv(known)
    arguments = COMMANDS[chain]
    for argument in arguments:
        if not argument.name.startswith("--"):
            continue
        words = []
        for other in arguments:
            if other.required and other.name not in (argument.name, "*"):
                value = two_values(other)[0]
                words += [f"{other.name}={value}"] if other.name.startswith("--") else [value]
        first, second = two_values(argument)
        typed = parsed(chain, [*words, f"{argument.name}={second}"])
        (variable,) = cast("tuple[str, ...]", argument.parameter.env_var)
        with monkeypatch.context() as environment:
            environment.setenv(variable, first)
            assert parsed(chain, [*words, f"{argument.name}={second}"]) == typed, argument.name
            assert parsed(chain, words) != typed, argument.name


def test_a_deletion_is_chosen_by_the_user_who_is_typed_beside_a_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    adas, bobs = make_session(), make_session(user="bob")
    for in_variable in ("ada", "bob"):
        monkeypatch.setenv("SATCHEL_USER", in_variable)
        answer = cli("sessions", "delete", "--user", "ada", "--dry-run", "--json")
        assert (answer.code, [one["session_id"] for one in answer.json["sessions"]]) == (0, [adas])
    monkeypatch.setenv("SATCHEL_STATUS", "closed")
    assert cli("sessions", "delete", "--status", "active", "--dry-run", "--json").json["would_delete"] == 1
    assert bobs not in cli("sessions", "delete", "--user=ada", "--status=active", "--dry-run", "--json").text


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("sessions", "list", "--all"), {"SATCHEL_CURSOR": "x"}),
        (("tail", "ID", "--all", "--no-follow"), {"SATCHEL_AFTER": "7"}),
        (("tail", "ID", "--after", "1", "--no-follow"), {"SATCHEL_ALL": "1", "SATCHEL_TEXT": "1"}),
        (("sweep", "--once"), {"SATCHEL_EVERY": "5s"}),
        (("copy", "--from", STORE, "--to", "sqlite:///b.db", "--settings"), {"SATCHEL_TENANT": "acme"}),
        (("keys", "create", "--role", "agent"), {"SATCHEL_USER": "ada"}),
        (("keys", "create", "--role=user", "--user=ada"), {"SATCHEL_ACTING_FOR": "bob"}),
        (("keys", "create", "--acting-for", "ada"), {"SATCHEL_USER": "ada", "SATCHEL_ROLE": "agent"}),
        (("sessions", "show", "ID"), {"SATCHEL_EXTERNAL_ID": "other"}),
        (("sessions", "export", "ID"), {"SATCHEL_EXTERNAL_ID": "other"}),
        (("sessions", "close", "ID"), {"SATCHEL_EXTERNAL_ID": "other"}),
        (("sessions", "delete", "ID", "--dry-run"), {"SATCHEL_EXTERNAL_ID": "other", "SATCHEL_ALL": "1"}),
    ],
)
def test_a_variable_does_not_speak_against_what_is_typed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    session_id = work_on_a_session().session_id
    given = [session_id if word == "ID" else word for word in words]
    plain = None if words[0] in ("keys", "copy") else cli(*given)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    again = cli(*given)
    assert again.code == 0, again.err
    if plain is not None and words[1] != "close":
        assert again.out == plain.out


def test_who_excludes_each_other_on_the_command_line_is_still_refused(cli: Cli) -> None:
    session_id = make_session()
    for words in (
        ("sessions", "list", "--all", "--cursor", "x"),
        ("tail", session_id, "--all", "--after", "1"),
        ("sweep", "--once", "--every", "5s"),
        ("sessions", "show", session_id, "--external-id", "x"),
        ("keys", "create", "--role", "agent", "--user", "ada"),
    ):
        assert cli(*words).code == 2, words


def test_rivals_are_flags() -> None:
    known = {name for arguments in COMMANDS.values() for one in arguments for name in one.names}
    assert {*RIVALS, *(name for rivals in RIVALS.values() for name in rivals)} <= known
