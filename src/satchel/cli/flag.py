"""How a flag is described, which variable it has, and how words of the command line become values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from cyclopts import Group, Parameter

from satchel.domain.record import LISTED, NOT_LISTED
from satchel.domain.run import STATUSES
from satchel.domain.spelling import value_given

WHERE = Group("Where", sort_key=1)
OPTIONS = Group("Options", sort_key=2)


class Token(Protocol):
    """One word of the command line, as cyclopts hands it to a converter."""

    @property
    def value(self) -> str: ...


def variable(flag: str) -> str:
    return "SATCHEL_" + flag.lstrip("-").replace("-", "_").upper()


def flag(
    *names: str,
    about: str,
    group: Group = OPTIONS,
    show_default: bool = False,
    env_var: str | None = None,
    **options: Any,
) -> Parameter:
    return Parameter(
        name=names,
        help=about,
        group=group,
        env_var=env_var or variable(names[0]),
        env_var_split=split_variable,
        show_env_var=group is WHERE,  # the rule is in the help of `satchel` itself
        show_default=show_default,
        **{"negative": ""} | options,
    )


def split_variable(kind: Any, value: str, *, delimiter: str | None = None) -> list[str]:  # noqa: ARG001  # cyclopts passes it
    """A variable of a flag that may be repeated holds one value a line; an empty one of a yes-or-no flag says nothing.
    Any other empty text is a value, and mostly a wrong one: SATCHEL_USER="" must not come to mean everybody."""
    if kind is bool:
        return [value] if value.strip() else []
    if kind == tuple[str, ...]:
        return [line for line in value.splitlines() if line.strip()]
    return [value]


# -- how words become values


def as_status(_kind: object, tokens: Sequence[Token]) -> str:
    status = tokens[0].value.upper()
    if status not in LISTED:
        raise ValueError(f"must be one of {', '.join(LISTED)}{NOT_LISTED}")
    return status


def as_run_status(_kind: object, tokens: Sequence[Token]) -> str:
    status = tokens[0].value.upper()
    if status not in STATUSES:
        raise ValueError(f"must be one of {', '.join(STATUSES)}")
    return status


def as_moment(_kind: object, tokens: Sequence[Token]) -> datetime:
    try:
        moment = datetime.fromisoformat(tokens[0].value)
    except ValueError:
        raise ValueError("must be a date or a time, for example 2026-01-31 or 2026-01-31T08:30:00+08:00") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def as_metadata(pairs: Sequence[str]) -> bytes | None:
    """``KEY=VALUE`` of each pair, as JSON. A VALUE that is JSON is that value, any other is text. Raises ValueError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"{pair!r} is not KEY=VALUE")
        found[key] = value_given(value)
    return msgspec.json.encode(found) if found else None


def as_pairs(_kind: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    pairs = tuple(token.value for token in tokens)
    as_metadata(pairs)
    return pairs
