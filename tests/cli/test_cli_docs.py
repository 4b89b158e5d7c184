"""The command lines of the documentation are ones that the command takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from satchel.cli.commands import make_app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES = [
    (document.name, line)
    for document in DOCUMENTS
    for line in re.findall(r"^\$ satchel (.+)$", document.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("document", "line"), LINES)
def test_a_command_line_of_the_docs_is_one_that_the_command_takes(document: str, line: str) -> None:
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)
    command, bound, _ = make_app().parse_args(words, exit_on_error=False, print_error=False)
    assert callable(command), document
    assert bound is not None


def test_there_are_lines_of_every_command_of_an_operator() -> None:
    told = {tuple(shlex.split(line, comments=True)[:2]) for name, line in LINES if name == "operating.md"}
    for words in (("sessions", "delete"), ("migrate", "status"), ("migrate", "up"), ("migrate", "sql")):
        assert words in told
    assert {"sweep", "doctor", "copy"} <= {words[0] for words in told}
