"""What is wrong with a command line, in one sentence."""

from __future__ import annotations

from difflib import get_close_matches

from cyclopts import Argument, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

ALIKE = 0.75  # of the letters: less is no slip of a finger


def sentence_of(wrong: CycloptsError) -> str:
    if isinstance(wrong, MissingArgumentError) and wrong.argument is not None:
        return _missing(wrong, wrong.argument)
    if isinstance(wrong, UnknownOptionError):
        return _unknown(wrong)
    if isinstance(wrong, UnusedCliTokensError) and wrong.unused_tokens:
        more = ", ".join(repr(token) for token in wrong.unused_tokens)
        return f"there is one argument too many: {more}" if len(wrong.unused_tokens) == 1 else f"too many: {more}"
    return str(wrong)


def _missing(wrong: MissingArgumentError, argument: Argument) -> str:
    given = wrong.keyword or next((token.keyword for token in argument.tokens if token.keyword), None)
    if given is not None:
        return f"{given} needs a value"
    for token in wrong.unused_tokens or ():
        if token.startswith("--") and get_close_matches(token.partition("=")[0], argument.names, n=1, cutoff=ALIKE):
            return f"there is no flag {token.partition('=')[0]}; did you mean {argument.name}?"
    variables = argument.parameter.env_var
    or_variable = f" (or {variables[0]})" if isinstance(variables, tuple) and variables else ""
    return f"{argument.name}{or_variable} is required"


def _unknown(wrong: UnknownOptionError) -> str:
    name = (wrong.token.keyword or wrong.token.value).partition("=")[0]
    known = [name for argument in wrong.argument_collection if argument.parse for name in argument.names]
    near = get_close_matches(name, known, n=1, cutoff=ALIKE)
    return f"there is no flag {name}" + (f"; did you mean {near[0]}?" if near else "")
