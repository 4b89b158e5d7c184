"""Runs the examples of the documentation.

The ```python blocks of a file share one namespace and one event loop, run in their order, in an empty folder; `await`
may stand at the top level. A block that cannot run here (it needs a model, or a database) is fenced as
```python notest: it is compiled only, and its first line is a comment that gives the reason.
"""

import ast
import asyncio
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^(?P<indent>\s*)(?P<mark>`{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True, kw_only=True)
class Block:
    document: Path
    line: int  # of its first line of code
    info: str
    source: str

    @property
    def is_python(self) -> bool:
        return bool(self.info) and self.info.split()[0] == "python"

    @property
    def is_run(self) -> bool:
        return "notest" not in self.info.split()

    def compile(self) -> CodeType:
        # The lines before it are kept as empty lines, so that a traceback points into the document.
        source = "\n" * (self.line - 1) + textwrap.dedent(self.source)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(self.document), "exec", flags=flags, dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


def documents() -> list[Path]:
    return [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]


def blocks_of(document: Path) -> Iterator[Block]:
    fence, info, start, lines = "", "", 0, list[str]()
    for number, text in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        mark = FENCE.match(text)
        if not fence and mark:
            fence, info, start, lines = mark["mark"], mark["info"].strip(), number + 1, []
        elif fence and text.strip() == fence:
            yield Block(document=document, line=start, info=info, source="\n".join(lines) + "\n")
            fence = ""
        elif fence:
            lines.append(text)
    assert not fence, f"{document}:{start - 1}: this fence is never closed"


def run_blocks(blocks: list[Block]) -> None:
    module = ModuleType("satchel_docs_example")
    sys.modules[module.__name__] = module  # typing and pickle look a class's module up by its name
    try:
        with asyncio.Runner() as runner:
            for block in blocks:
                code = block.compile()
                if not block.is_run:
                    continue
                # Blocking examples run outside the event loop, as they would for their reader.
                outcome = eval(code, module.__dict__)  # noqa: S307 - our own documentation
                if inspect.iscoroutine(outcome):
                    runner.run(outcome)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_in_the_documentation_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks([block for block in blocks_of(document) if block.is_python])


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_block_that_is_not_run_gives_its_reason(document: Path) -> None:
    for block in blocks_of(document):
        place = f"{document}:{block.line}"
        assert block.info.lower() not in {"py", "python3"}, f"{place}: fence it as `python`, so that it is run"
        if block.is_python and not block.is_run:
            assert block.source.lstrip().startswith("# "), f"{place}: why is it not run? Say so in its first line"


def write(folder: Path, text: str) -> list[Block]:
    document = folder / "example.md"
    document.write_text(text, encoding="utf-8")
    return list(blocks_of(document))


def test_blocks_share_their_names_and_await_at_the_top_level(tmp_path: Path) -> None:
    run_blocks(
        write(
            tmp_path,
            "```python\nimport asyncio\nqueue = asyncio.Queue()\nawait queue.put(1)\n```\n\n"
            "- in a list:\n\n  ```python\n  assert await queue.get() == 1\n  ```\n",
        )
    )


def test_a_failing_example_points_to_its_line_of_the_document(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run_blocks(write(tmp_path, "# Title\n\n```python\nn = 0\n1 / n\n```\n"))
    assert failure.traceback[-1].lineno == 4  # counted from 0
    assert failure.traceback[-1].path == tmp_path / "example.md"


def test_a_block_marked_notest_is_compiled_and_not_run(tmp_path: Path) -> None:
    run_blocks(write(tmp_path, "```python notest\n# needs a model\nraise SystemExit\n```\n"))
    with pytest.raises(SyntaxError):
        run_blocks(write(tmp_path, "```python notest\n# needs a model\nreturn = 1\n```\n"))
