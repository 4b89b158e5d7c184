"""Writes the blocking managers of `satchel.sync` from the async ones: same signatures, same docstrings, no `await`.

Run it after a change to a signature or a docstring: `python -m tools.make_sync`. With `--check` nothing is written, and it
fails if something would be.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/satchel")


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """One class: where it is written, what it is called for blocking code."""

    module: str  # below `satchel`, the same there and in `satchel.sync`
    name: str
    blocking_name: str
    contract: tuple[str, str] | None = None  # module and class that define which methods are public, and document them


MIRRORS = (
    Mirror(module="sessions", name="SessionManager", blocking_name="SessionManager"),
    Mirror(module="runs", name="RunManager", blocking_name="RunManager"),
    Mirror(module="sweeper", name="Sweeper", blocking_name="Sweeper"),
    Mirror(module="working", name="RunInProgress", blocking_name="RunContext", contract=("engine", "RunContext")),
)

# What stands in a blocking signature for a name of the async side, and where it is imported from.
INSTEAD = {
    "OpenStore": ("satchel.sync.opening", "OpenStore"),
    "RunInProgress": ("satchel.sync.working", "RunContext"),
    "StreamedAnswer": ("satchel.sync.streaming", "TextStream"),
}
# Of what is entered, the blocking side's own view.
SHOWN = {
    "RunInProgress": "lambda running: RunContext(running, self._loop)",
    "StreamedAnswer": "lambda answer: TextStream(answer, self._loop)",
}
HELPERS = {
    "AbstractContextManager": "contextlib",
    "BackgroundLoop": "satchel.sync.background",
    "Feed": "satchel.sync.plain",
    "Held": "satchel.sync.plain",
    "Iteration": "satchel.sync.plain",
    "as_it_is": "satchel.sync.plain",
    "async_side": "satchel.sync.opening",
    "call_tool": "satchel.sync.calling",
    "loop_of": "satchel.sync.opening",
}

# Methods that run the caller's own code, which belongs into the calling thread: written by hand.
BY_HAND = {("RunContext", "call"): "call_tool"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module of the async side, and where each of its names comes from."""

    def __init__(self, module: str) -> None:
        self.module = f"satchel.{module}"
        self.path = path_of_module(PACKAGE, module)
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.origins: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
                self.origins |= {alias.asname or alias.name: node.module for alias in node.names}
        for statement in self.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    self.origins[name] = self.module
                case ast.ClassDef(name=name):
                    self.origins[name] = self.module

    def docstring(self, node: ast.ClassDef | Function) -> str | None:
        """As it is written, in words for blocking code."""
        if ast.get_docstring(node) is None:
            return None
        written = ast.get_source_segment(self.text, node.body[0])
        assert written is not None
        return re.sub(r"\basync with\b", "with", re.sub(r"\bawait ", "", written))


def path_of_module(folder: Path, module: str) -> Path:
    path = folder.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@dataclass(frozen=True, kw_only=True)
class Method:
    function: Function
    source: Source  # where it is written
    overloads: tuple[Function, ...] = ()

    @property
    def docstring(self) -> str | None:
        return self.source.docstring(self.function)


@dataclass(frozen=True, kw_only=True)
class Class:
    """A class and the parts that it is composed of."""

    docstring: str | None
    constructor: Method | None
    methods: dict[str, Method]  # the public ones and the properties: those of the parts, in their order, then its own
    origins: dict[str, str]  # of the names in all these modules


def read_class(module: str, name: str) -> Class:
    """Follows a package to the module that defines the class, and a class to its bases in `satchel`."""
    source = Source(module)
    node = next((item for item in source.tree.body if isinstance(item, ast.ClassDef) and item.name == name), None)
    if node is None:
        return read_class(source.origins[name].removeprefix("satchel."), name)
    constructor: Method | None = None
    methods: dict[str, Method] = {}
    origins: dict[str, str] = {}
    for base in node.bases:
        origin = source.origins.get(base.id, "") if isinstance(base, ast.Name) else ""
        if isinstance(base, ast.Name) and origin.startswith("satchel."):
            part = read_class(origin.removeprefix("satchel."), base.id)
            constructor = constructor or part.constructor
            for key, method in part.methods.items():
                known = methods.setdefault(key, method)
                assert known.source.module == method.source.module, f"{name} has {key} from two parts"
            origins |= part.origins
    overloads: dict[str, tuple[Function, ...]] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            if has_decorator(item, "overload"):
                overloads[item.name] = (*overloads.get(item.name, ()), item)
                continue
            method = Method(function=item, source=source, overloads=overloads.get(item.name, ()))
            if item.name == "__init__":
                constructor = method
            elif not item.name.startswith("_"):
                methods[item.name] = method
    docstring = source.docstring(node)
    return Class(docstring=docstring, constructor=constructor, methods=methods, origins=origins | source.origins)


class Blocking(ast.NodeTransformer):
    """An annotation of the async side as the blocking side has it."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(INSTEAD[node.id][1]) if node.id in INSTEAD else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node.value:
            case ast.Name(id="AbstractAsyncContextManager"):
                node.value = ast.Name("AbstractContextManager")
            case ast.Name(id="AsyncIterator"):
                node.value = ast.Name("Iteration")
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`Iterable[X] | AsyncIterable[X]` is an iterable for blocking code."""
        if is_subscript_of(node.right, "AsyncIterable"):
            return self.visit(node.left)  # type: ignore[no-any-return]  # what NodeTransformer says it returns
        self.generic_visit(node)
        return node


def is_subscript_of(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name


def handed_on(argument: ast.arg) -> str:
    """The argument as it is given to the async method. Iterables are read in the calling thread."""
    name, annotation = argument.arg, argument.annotation
    if isinstance(annotation, ast.BinOp) and is_subscript_of(annotation.right, "AsyncIterable"):
        return f"Feed({name})"
    if is_subscript_of(annotation, "Iterable"):
        return f"tuple({name})"
    if isinstance(annotation, ast.BinOp) and is_subscript_of(annotation.left, "Iterable"):
        return f"None if {name} is None else tuple({name})"
    return name


def call_of(function: Function) -> str:
    """The arguments of a call that hands all of its own on."""
    arguments = function.args
    given = [handed_on(argument) for argument in (*arguments.posonlyargs, *arguments.args)][1:]
    given += [f"{argument.arg}={handed_on(argument)}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def blocking_signature(function: Function) -> tuple[str, str]:
    """Parameters and return type."""
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef | ast.AsyncFunctionDef)
    change = Blocking()
    arguments = copy.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = change.visit(argument.annotation)
    returns = copy.returns
    assert returns is not None, f"{function.name} does not say what it returns"
    if has_decorator(function, "asynccontextmanager"):
        assert isinstance(returns, ast.Subscript)
        returns = ast.Subscript(ast.Name("AbstractAsyncContextManager"), returns.slice)
    return ast.unparse(arguments), ast.unparse(change.visit(returns))


def has_decorator(function: Function, name: str) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == name for decorator in function.decorator_list)


def body_of(function: Function) -> str:
    call = f"self._async.{function.name}({call_of(function)})"
    returns = ast.unparse(function.returns) if function.returns else ""
    if has_decorator(function, "property"):
        return f"return self._async.{function.name}"
    if has_decorator(function, "asynccontextmanager") or returns.startswith("AbstractAsyncContextManager"):
        shown = next((view for name, view in SHOWN.items() if name in returns), "as_it_is")
        return f"return Held(self._loop, {call}, {shown})"
    if returns.startswith("AsyncIterator"):
        return f"return Iteration(self._loop, {call})"
    if isinstance(function, ast.AsyncFunctionDef):
        call = f"self._loop.call({call})"
    return call if returns == "None" else f"return {call}"


def constructor_of(mirror: Mirror, found: Class) -> Iterator[str]:
    if mirror.contract:
        yield f"def __init__(self, running: Async{mirror.blocking_name}, loop: BackgroundLoop) -> None:"
        yield "    self._loop = loop"
        yield "    self._async = running"
        return
    assert found.constructor is not None, f"{mirror.name} has no __init__"
    function = found.constructor.function
    parameters, _ = blocking_signature(function)
    yield f"def __init__({parameters}) -> None:"
    if written := found.constructor.docstring:
        yield f"    {written}"
    yield f"    self._async = Async{mirror.blocking_name}({re.sub(r'^store', 'async_side(store)', call_of(function))})"
    yield "    self._loop = loop_of(store)"


def class_text(mirror: Mirror, found: Class) -> str:
    contract = read_class(*mirror.contract) if mirror.contract else found
    lines = [f"class {mirror.blocking_name}:"]
    if contract.docstring:
        lines.append(f"    {contract.docstring}")
    lines += ["", *(f"    {line}" for line in constructor_of(mirror, found))]
    for name, documented in contract.methods.items():
        method = found.methods[name]
        for overload in method.overloads:
            parameters, returns = blocking_signature(overload)
            lines += ["", "    @overload", f"    def {name}({parameters}) -> {returns}: ..."]
        parameters, returns = blocking_signature(method.function)
        if has_decorator(method.function, "property"):
            lines += ["", "    @property"]
        lines += ["", f"    def {name}({parameters}) -> {returns}:"]
        if written := method.docstring or documented.docstring:
            lines.append(f"        {written}")
        by_hand = BY_HAND.get((mirror.blocking_name, name))
        handed = f"return {by_hand}(self, {call_of(method.function)})" if by_hand else body_of(method.function)
        lines.append(f"        {handed}")
    return "\n".join(lines) + "\n"


def imports_of(text: str, mirror: Mirror, origins: Mapping[str, str]) -> str:
    """The imports that the names in `text` need."""
    lines = ["from __future__ import annotations"]
    lines.append(f"from satchel.{mirror.module} import {mirror.name} as Async{mirror.blocking_name}")
    own_module = f"satchel.sync.{mirror.module}"
    blocking_names = {name: module for module, name in INSTEAD.values()}
    for name in sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}):
        module = blocking_names.get(name) or HELPERS.get(name) or origins.get(name)
        if module and module != own_module:
            lines.append(f"from {module} import {name}")
    return "\n".join(lines)


def render(mirror: Mirror) -> str:
    """The blocking module."""
    found = read_class(mirror.module, mirror.name)
    text = class_text(mirror, found)
    # From a class of the async side to its blocking namesake: an import may not bring in the former.
    origin = Source(mirror.module).path.relative_to(PACKAGE.parent)
    written_from = f"{origin.parent}/" if origin.name == "__init__.py" else origin
    head = f'"""Written by tools/make_sync.py from {written_from}: change that, and run it again."""'
    return tidy(f"{head}\n\n{imports_of(text, mirror, found.origins)}\n\n\n{text}")


def tidy(text: str) -> str:
    for command in (["check", "--fix-only", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", "src/satchel/sync/written.py", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def path_of(mirror: Mirror) -> Path:
    return PACKAGE / "sync" / f"{mirror.module}.py"


def is_current(mirror: Mirror) -> bool:
    path = path_of(mirror)
    return path.is_file() and path.read_text(encoding="utf-8") == render(mirror)


def main(arguments: Sequence[str]) -> int:
    stale = [mirror for mirror in MIRRORS if not is_current(mirror)]
    for mirror in stale:
        if "--check" in arguments:
            print(f"{path_of(mirror)} is not what the async side makes; run `python -m tools.make_sync`")
        else:
            path_of(mirror).write_text(render(mirror), encoding="utf-8")
            print(f"wrote {path_of(mirror)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
