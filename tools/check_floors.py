"""Checks that imports inside `satchel` go down the floors only. `--explain` prints the floors."""

import ast
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

# From the ground up: the floor's name and the modules of `satchel` that live there. A new module needs a line here.
FLOORS: tuple[tuple[str, frozenset[str]], ...] = (
    ("0", frozenset({"errors"})),
    ("1", frozenset({"domain"})),
    ("2", frozenset({"store", "engine"})),
    ("3a", frozenset({"commit", "follow", "context", "opened", "shown", "stores"})),
    (
        "3b",
        frozenset(
            {
                "access",
                "answered",
                "calling",
                "children",
                "edited",
                "failing",
                "holding",
                "listing",
                "patience",
                "pending",
                "questions",
                "runs",
                "schemas",
                "sessions",
                "streaming",
                "sweeper",
                "texts",
                "transfer",
                "worker",
                "working",
            }
        ),
    ),
    (
        "4",
        frozenset({"http", "client", "sync", "testing", "engines", "opening", "servers", "traces"}),
    ),
    ("5", frozenset({"cli", "demo", "__main__"})),
)

# Two sides of one floor that never import each other: a commit knows no database, a database knows no commit.
SIDES: tuple[frozenset[str], frozenset[str]] = (
    frozenset({"stores"}),
    frozenset({"commit", "follow", "context", "opened", "shown"}),
)

# A store imports no other store. What several stores share is a module of `stores/` that is named here.
SHARED_BY_STORES: frozenset[str] = frozenset({"bounds", "looking", "migrations", "rows", "sql"})

# Only these may import the public names from `satchel` itself, whose `__init__` imports all that is below them.
MAY_IMPORT_PUBLIC_NAMES: frozenset[str] = frozenset({"4", "5"})

PACKAGE = "satchel"
PUBLIC_NAMES_RULE = (
    f"`from {PACKAGE} import …` (its public names) is for floors {' and '.join(sorted(MAY_IMPORT_PUBLIC_NAMES))}."
)
HEIGHTS = {module: height for height, (_, modules) in enumerate(FLOORS) for module in modules}


@dataclass(frozen=True, kw_only=True)
class Violation:
    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def find_violations(package: Path) -> list[Violation]:
    """Every import below `package` (the folder of `satchel`) that goes up, and every module without a floor."""
    modules = {module_name(package, path): path for path in sorted(package.rglob("*.py"))}
    violations = []
    for importer, path in modules.items():
        if importer == PACKAGE:
            continue  # satchel/__init__.py hands out the public names of all floors
        if top_level(importer) not in HEIGHTS:
            unknown = f"{importer} is new: say on which floor it lives, in FLOORS of tools/check_floors.py"
            violations.append(Violation(path=path, line=1, reason=unknown))
            continue
        tree = ast.parse(path.read_bytes(), filename=str(path))
        for line, imported in imports_of(tree, importer, is_package=path.name == "__init__.py", modules=modules.keys()):
            reason = reason_against(importer, imported)
            if reason:
                violations.append(Violation(path=path, line=line, reason=reason))
    return violations


def reason_against(importer: str, imported: str) -> str | None:
    """Why `importer` may not import `imported` (both full module names), or None if it may."""
    source, target = top_level(importer), top_level(imported)
    source_floor = FLOORS[HEIGHTS[source]][0]
    if not target:
        if source_floor in MAY_IMPORT_PUBLIC_NAMES:
            return None
        return f"{importer} (floor {source_floor}) imports from {PACKAGE} itself: name the module that defines it"
    if target not in HEIGHTS:
        return f"{importer} imports {imported}, and {target} has no floor: say on which it lives"
    target_floor = FLOORS[HEIGHTS[target]][0]
    if HEIGHTS[target] > HEIGHTS[source]:
        return f"{importer} (floor {source_floor}) imports {imported} (floor {target_floor}): imports go down only"
    if any(source in SIDES[one] and target in SIDES[1 - one] for one in (0, 1)):
        return f"{importer} imports {imported}: the two sides of floor {source_floor} do not know each other"
    if source == target == "stores":
        return reason_against_stores(importer, imported)
    return None


def reason_against_stores(importer: str, imported: str) -> str | None:
    source, target = child_of_stores(importer), child_of_stores(imported)
    if not source or source == target or target in SHARED_BY_STORES:
        return None  # stores/__init__.py may name them all
    return f"{importer} imports {imported}: a store knows no other store"


def imports_of(tree: ast.Module, importer: str, *, is_package: bool, modules: Set[str]) -> Iterator[tuple[int, str]]:
    """Line and full name of each module of the package that the tree imports, wherever in the file it does so."""
    here = importer.split(".") if is_package else importer.split(".")[:-1]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = here[: len(here) - level + 1] if level else []
                origin = ".".join([*base, *([module] if module else [])])
                # `from satchel.stores import memory` imports a module, `from satchel.errors import Busy` a name of one.
                names = [full if (full := f"{origin}.{alias.name}") in modules else origin for alias in aliases]
            case ast.Call(
                func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names = [name]
            case _:
                continue
        for name in dict.fromkeys(names):
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                yield node.lineno, name


def module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def top_level(module: str) -> str:
    """`satchel.stores.memory` → `stores`; `satchel` → the empty string."""
    return module.split(".")[1] if "." in module else ""


def child_of_stores(module: str) -> str:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 else ""


def explain() -> str:
    lines = ["Imports go down only, from a floor to itself or to one below it:", ""]
    for floor, modules in reversed(FLOORS):
        sides = [sorted(modules & side) for side in reversed(SIDES)]
        named = "   |   ".join("  ".join(side) for side in sides) if all(sides) else "  ".join(sorted(modules))
        lines.append(f"  {floor:>2}  {named}")
    lines += ["", "The two sides of a | never import each other, nor does one store another.", PUBLIC_NAMES_RULE]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    if "--explain" in arguments:
        print(explain())
        return 0
    package = Path("src") / PACKAGE
    if not package.is_dir():
        print(f"no {package} here: run this from the root of the repository", file=sys.stderr)
        return 2
    violations = find_violations(package)
    for violation in violations:
        print(violation)
    if violations:
        print(f"{len(violations)} imports against the floors; `python -m tools.check_floors --explain` shows them.")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
