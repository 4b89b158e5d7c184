"""An answer that no service of ours gives: a portal's page, another program's JSON, a version that lacks a member."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from satchel.errors import ServiceRefused

P = ParamSpec("P")
T = TypeVar("T")

# What a reader of JSON raises that is not JSON, or lacks what it looks for, or has another shape.
NOT_OURS = (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, RecursionError)


def not_understood(what: str) -> ServiceRefused:
    return ServiceRefused(
        status=200, problem="http", detail=f"its {what} is none that this client understands; is it Satchel's address?"
    )


def understood(read: Callable[P, T]) -> Callable[P, T]:
    """``read`` takes an answer apart; what it cannot raises ServiceRefused, and shows nothing of it."""

    @functools.wraps(read)
    def reading(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return read(*arguments, **options)
        except NOT_OURS as wrong:
            raise not_understood("answer") from wrong

    return reading
