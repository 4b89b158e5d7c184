"""Promises of the scratch project: it fails for the one reason of the story, and works once that is repaired."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from satchel.demo import CodingTools, build_flask_project


@pytest.fixture
def tools(tmp_path: Path) -> CodingTools:
    return CodingTools(build_flask_project(tmp_path / "公告板 project"))


async def test_the_project_holds_the_files_of_the_story_and_lacks_one_line(tools: CodingTools) -> None:
    assert (await tools.list_files())["files"] == ["README.md", "app.py", "requirements.txt", "test_app.py"]
    requirements = (await tools.read_file("requirements.txt"))["content"]
    assert "flask" in requirements
    assert "requests" not in requirements
    source = (await tools.read_file("app.py"))["content"]
    assert source.index("import requests") < source.index("from flask")


async def test_the_program_really_fails_for_want_of_requests(tools: CodingTools) -> None:
    result = await tools.run_shell("python3 app.py")
    assert result["exit_code"] == 1
    assert result["stderr"].endswith("ModuleNotFoundError: No module named 'requests'\n")


@pytest.mark.parametrize("python", ["python", "python3"])
async def test_the_interpreter_is_the_projects_own_and_bare(tools: CodingTools, python: str) -> None:
    prefix = await tools.run_shell(f'{python} -c "import sys; print(sys.prefix)"')
    assert prefix["stdout"] == f"{tools.folder / '.venv'}\n"
    for package in ("flask", "requests", "pip"):
        assert (await tools.run_shell(f'{python} -c "import {package}"'))["exit_code"] == 1


async def test_pip_works_on_the_project_and_not_on_the_outer_environment(tools: CodingTools) -> None:
    result = await tools.run_shell("pip --version && pip list --format=freeze")
    assert result["exit_code"] == 0, result["stderr"]
    assert result["stdout"].startswith("pip ")
    assert len(result["stdout"].splitlines()) == 1  # the version, and an empty list


def test_the_project_is_built_fast_and_never_over_another(tmp_path: Path) -> None:
    start = time.monotonic()
    build_flask_project(tmp_path / "new")
    assert time.monotonic() - start < 5
    with pytest.raises(FileExistsError):
        build_flask_project(tmp_path / "new")


async def test_an_absent_wheel_is_not_looked_for_on_an_index(
    tools: CodingTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no wheels").mkdir()
    monkeypatch.setenv("SATCHEL_DEMO_WHEELS", str(tmp_path / "no wheels"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    result = await tools.run_shell("pip install -r requirements.txt", timeout=60)
    assert result["exit_code"] == 1
    assert "No matching distribution found for flask" in result["stderr"]


async def test_the_repaired_project_starts_and_passes_its_tests(tools: CodingTools) -> None:
    if not Path(os.environ.get("SATCHEL_DEMO_WHEELS") or "/absent").is_dir():
        pytest.skip("needs SATCHEL_DEMO_WHEELS: a folder made by `pip download flask requests -d FOLDER`")
    requirements = (await tools.read_file("requirements.txt"))["content"]
    await tools.write_file("requirements.txt", requirements + "requests>=2.31\n")
    installed = await tools.run_shell("pip install -r requirements.txt", timeout=120)
    assert installed["exit_code"] == 0, installed["stderr"]
    started = await tools.run_shell("python3 app.py")
    assert started["exit_code"] == 0, started["stderr"]
    assert started["stdout"].startswith("OK 启动成功 http://127.0.0.1:")
    tested = await tools.run_shell("python3 -m unittest -v")
    assert tested["exit_code"] == 0, tested["stderr"]
    assert "Ran 4 tests" in tested["stderr"]
    assert (await tools.list_files())["files"] == ["README.md", "app.py", "requirements.txt", "test_app.py"]
