"""Checks the documentation: links and anchors resolve, and no file tells on whose machine it was written.

What is read: every *.md for links; besides those the Makefile, pyproject.toml and requirements/ for places.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

# Folders that hold no text of ours. Hidden folders are skipped too.
SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules"})

FENCE = re.compile(r"^ {0,3}(?:> ?)*\s*(`{3,}|~{3,})")
INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINKS = (
    re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'(][^)]*)?\)"),  # [text](target "title") and ![alt](target)
    re.compile(r"^ {0,3}\[[^\]^]+\]:\s*<?(\S+?)>?(?:\s|$)"),  # [name]: target
    re.compile(r"\b(?:href|src)=[\"']([^\"']+)[\"']"),
)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$")
EXPLICIT_ANCHOR = re.compile(r"\b(?:id|name)=[\"']([^\"']+)[\"']")
LINE_OF_CODE = re.compile(r"L\d+(-L\d+)?")
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")

# Where packages come from is each machine's own setting.
PACKAGE_INDEX = re.compile(
    r"https?://[^\s)>\"']*(?:pypi|registry|mirror|/simple\b)|--(?:extra-)?index-url|--find-links|--trusted-host"
)
SOMEBODYS_HOME = re.compile(r"(?<![\w.:/-])/(?:home|Users)/\w[\w.-]*")


@dataclass(frozen=True, kw_only=True)
class Finding:
    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def find_in_tree(root: Path) -> list[Finding]:
    """All findings below `root`, with paths relative to it."""
    documents = sorted(path for path in walk(root) if path.suffix == ".md")
    settings = [root / "Makefile", root / "pyproject.toml", *sorted((root / "requirements").glob("*"))]
    machine_paths = paths_of_this_machine(root)
    findings = [finding for document in documents for finding in find_broken_links(document, root)]
    for path in [*documents, *(path for path in settings if path.is_file())]:
        findings += find_places(path, root, machine_paths)
    return findings


def walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not path.name.startswith(".") and path.name not in SKIPPED_FOLDERS:
                yield from walk(path)
        else:
            yield path


def find_broken_links(document: Path, root: Path) -> Iterator[Finding]:
    for line, text in prose_lines(document):
        for target in (match for pattern in LINKS for match in pattern.findall(INLINE_CODE.sub("", text))):
            reason = reason_against(target, document, root)
            if reason:
                yield Finding(path=document.relative_to(root), line=line, reason=f"{target}: {reason}")


def reason_against(target: str, document: Path, root: Path) -> str | None:
    if SCHEME.match(target) or target.startswith("//"):
        return None  # the web is not asked: a check must not fail because somebody else's server is down
    if target.startswith("/"):
        return "write it relative to this file"
    name, _, anchor = target.partition("#")
    path = (document.parent / unquote(name)).resolve() if name else document.resolve()
    if not path.is_relative_to(root.resolve()):
        return "leads out of the repository"
    if not path.exists():
        return "no such file"
    if not anchor or (path.suffix != ".md" and LINE_OF_CODE.fullmatch(anchor)):
        return None
    if path.suffix != ".md" or unquote(anchor) not in anchors(path):
        return "no such heading there"
    return None


def anchors(document: Path) -> set[str]:
    """The names that a link may give after `#`: explicit ones, and headings as GitHub spells them."""
    found: set[str] = set()
    for _, text in prose_lines(document):
        found.update(EXPLICIT_ANCHOR.findall(text))
        heading = HEADING.match(text)
        if heading:
            slug = slug_of(heading[1])
            repeats = (f"{slug}-{number}" if number else slug for number in range(len(found) + 1))
            found.add(next(name for name in repeats if name not in found))
    return found


def slug_of(heading: str) -> str:
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")


def prose_lines(document: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside fenced code."""
    fence = ""
    for number, text in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        mark = FENCE.match(text)
        if not fence and mark:
            fence = mark[1]
        elif fence:
            if mark and mark[1].startswith(fence) and text.strip(" >") == mark[1]:
                fence = ""
        else:
            yield number, text


def find_places(path: Path, root: Path, machine_paths: re.Pattern[str]) -> Iterator[Finding]:
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, reason in (
            (PACKAGE_INDEX, "names a place that packages come from"),
            (SOMEBODYS_HOME, "is a path of somebody's machine"),
            (machine_paths, "is a path of this machine"),
        ):
            found = pattern.search(text)
            if found:
                yield Finding(path=path.relative_to(root), line=number, reason=f"{found[0]} {reason}")


def paths_of_this_machine(root: Path) -> re.Pattern[str]:
    """What slips in when a command's output is pasted: the home folder, the checkout, what stands beside it."""
    beside = root.resolve().parent
    # A checkout at the top, /app in a container, has a name that a text may well use on purpose.
    places = [Path.home(), *(beside.iterdir() if beside not in {Path("/"), Path(tempfile.gettempdir())} else [])]
    names = "|".join(re.escape(str(place)) for place in sorted(places, reverse=True) if place != Path("/"))
    return re.compile(rf"(?<![\w.:/-])(?:{names or '(?!)'})(?![\w-])")


def main() -> int:
    findings = find_in_tree(Path())
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
