from pathlib import Path

import pytest

from tools.check_links import find_in_tree

ROOT = Path(__file__).parent.parent


def test_all_links_in_the_documentation_resolve() -> None:
    assert [str(finding) for finding in find_in_tree(ROOT)] == []


def tree(folder: Path, text: str) -> Path:
    """One of its own: beside it stands what a thousand other tests left."""
    folder = folder / "tree"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "other.md").write_text("# Two words: `code`, 会话!\n\n# Again\n\n# Again\n\n<a id='here'></a>\n")
    (folder / "README.md").write_text(text)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/other.md)",
        "[a](docs/other.md#two-words-code-会话)",
        "[a](docs/other.md#again-1) and [b](docs/other.md#here 'title')",
        "# Top\n[a](#top)",
        "[a](docs)",
        "[a][b]\n\n[b]: docs/other.md",
        "[a](https://example.org/docs)",
        "`[a](missing.md)` and\n```\n[a](missing.md)\n```",
        "GET /v1/sessions, /livez",
    ],
)
def test_a_good_link_is_no_finding(tmp_path: Path, text: str) -> None:
    assert find_in_tree(tree(tmp_path, text)) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](missing.md)", "no such file"),
        ("![a](docs/missing.png)", "no such file"),
        ("[a][b]\n\n[b]: missing.md", "no such file"),
        ("<img src='missing.svg'>", "no such file"),
        ("[a](docs/other.md#again-2)", "no such heading"),
        ("# Top\n[a](#bottom)", "no such heading"),
        ("[a](/docs/other.md)", "relative"),
        ("[a](../outside.md)", "leads out"),
        ("pip install --index-url x satchel", "packages come from"),
        ("see /home/ada/satchel", "somebody's machine"),
        ("```\nTraceback in {root}/src/satchel/run.py\n```", "this machine"),
    ],
)
def test_a_broken_link_or_a_place_is_found(tmp_path: Path, text: str, reason: str) -> None:
    (finding,) = find_in_tree(tree(tmp_path, text.format(root=tmp_path / "tree")))
    assert finding.path == Path("README.md")
    assert reason in finding.reason
