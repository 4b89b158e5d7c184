"""Which SATCHEL_* variables there are, so that one with a slip in it is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from cyclopts import Parameter

from satchel.cli import flags
from satchel.http import settings
from satchel.http.setting_errors import unknown_variables

OTHERS = ("SATCHEL_DEBUG", "SATCHEL_DEMO_WHEELS")  # of no flag


def known_variables() -> frozenset[str]:
    """Those of all flags and settings, and a few more."""
    hints = [value for value in vars(flags).values() if hasattr(value, "__metadata__")]
    for group in (flags.Where, flags.Whose):
        hints += get_type_hints(group, include_extras=True).values()
    return frozenset({*(name for hint in hints for name in _of(hint)), *settings.variables().values(), *OTHERS})


def _of(hint: Any) -> Iterator[str]:
    for one in hint.__metadata__:
        if isinstance(one, Parameter) and one.env_var:
            yield from (one.env_var,) if isinstance(one.env_var, str) else one.env_var


def warn_of_unknown(say: Callable[[str], None]) -> None:
    """Of this process's environment. Nothing is refused: a variable may be an agent's own."""
    for sentence in unknown_variables(os.environ, known_variables(), prefix=settings.VARIABLE):
        say(sentence)
