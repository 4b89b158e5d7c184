"""Runs the examples of the documentation.

The ```python blocks of a file share one namespace and one event loop, run in their order, in an empty folder; `await`
may stand at the top level. Somebody is to see the pauses of an example; here a sleep of a second or more is one of 10 ms. A block that cannot run here (it needs a model, or a database) is fenced as
```python notest: it is compiled only, and its first line is a comment that gives the reason.
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
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
        tree = compile(source, str(self.document), "exec", flags=flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        code = compile(Impatient().visit(tree), str(self.document), "exec", flags=flags, dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class Impatient(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=int() | float() as seconds) as given]
            ):
                given.value = min(seconds, 0.01) if seconds >= 1 else seconds
        self.generic_visit(node)
        return node


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


HOW_TO_RUN = "The blocks of this page are one program: put them in their order into one file, under `async def main():`"


@pytest.mark.parametrize("document", documents()[1:], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_whose_blocks_await_says_how_to_run_them(document: Path) -> None:
    blocks = [block for block in blocks_of(document) if block.is_python and block.is_run]
    if not any(inspect.CO_COROUTINE & block.compile().co_flags for block in blocks):
        return
    text = document.read_text("utf-8")
    assert -1 < text.find(HOW_TO_RUN) < text.find("```python")
    inside = "".join(textwrap.indent(textwrap.dedent(block.source), "    ") for block in blocks)
    compile(f"async def main():\n{inside}", str(document), "exec")


def test_the_readmes_agent_goes_on_after_it_was_killed_in_the_middle(tmp_path: Path) -> None:
    example = next(block for block in blocks_of(ROOT / "README.md") if block.is_python).source
    program = tmp_path / "agent.py"
    program.write_text(example.replace("lease=5", "lease=1"))
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    first = subprocess.Popen(
        [sys.executable, program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "run 1 []\n"
    assert "kill me now" in first.stdout.readline()
    first.kill()
    first.communicate(timeout=10)
    program.write_text(program.read_text().replace("sleep(10)", "sleep(0.1)"))
    said = [
        subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
        for _ in range(2)
    ]
    second, third = (one.stdout.splitlines() for one in said)
    assert second[0] == "run 2 [('run_shell', 'unknown')]"
    assert third[0] == "run 3 [('run_shell', 'unknown'), ('run_shell', 'succeeded')]"
    assert "kill me now" not in "".join(third)
    assert third[-1].startswith("I know ")


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
