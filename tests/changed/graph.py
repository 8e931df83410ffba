"""The import graph of the checkout, read from the sources.

A node is a top-level name of a module: a test that uses one function depends on what this function imports, and not on
all that its module imports. Imports inside functions count, because this project imports lazily. So do modules that a
string names, as in `python -m provisioner.node`. Annotations of functions do not count.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

ROOTS: Final = ("provisioner", "lab", "artefacts", "tests", "website", "charts", "ansible")
COLLECTION: Final = "ansible_collections.provisioner.provisioner."
"""Ansible imports the folder ansible/ by this name."""
ON_IMPORT: Final = "<import>"
"""Stands for the statements of a module that bind no name."""
_DOTTED: Final = re.compile(rf"\b(?:{'|'.join(ROOTS)})(?:[.:][A-Za-z_]\w*)+")


@dataclass
class Node:
    """A top-level name, or a module, which depends on all of its names."""

    path: str
    imports: set[str] = field(default_factory=set)
    """Dotted names as written."""
    table: set[tuple[str, str]] = field(default_factory=set)
    """Key and target of each entry such as `"why": "provisioner.cli.why.command:why"`, which is imported on use."""
    strings: set[str] = field(default_factory=set)
    """String constants except docstrings. `ROOT / "images" / "node"` is `./images/node`."""
    fixtures: set[str] = field(default_factory=set)
    """Names that pytest resolves."""
    text: str = ""
    """The strings, one a line, sorted."""
    is_fixture: bool = False
    applies_to_all: bool = False
    """An autouse fixture, or a hook of pytest: if it is in a conftest.py, every test below that depends on it."""


class Graph:
    """Nodes by name: `provisioner.rules.liveness`, and `provisioner.rules.liveness.judge`.

    deleted: files that no longer exist; what still imports them depends on them.
    """

    def __init__(self, nodes: Mapping[str, Node], deleted: Collection[str] = ()) -> None:
        self.nodes = dict(nodes)
        self.files = frozenset(node.path for node in nodes.values())
        self.nodes |= {module_name(path): Node(path) for path in deleted if path.endswith(".py")}
        self._applying_to_all: dict[str, list[str]] = defaultdict(list)
        for name, node in nodes.items():
            if node.applies_to_all:
                self._applying_to_all[node.path].append(name)
        self._imports = cache(lambda name: tuple(dict.fromkeys(self._find_imports(name))))
        self._resolve = cache(self._find)
        self._within = cache(lambda name: tuple(self._find_around(name)))

    def reached_from(self, test: str) -> dict[str, str]:
        """Every node that the test file `test` depends on, nearest first → the node that led to it."""
        start = module_name(test)
        came_from, expanded, to_do = {start: start}, set[str](), [start]
        for name in self._around(test):
            came_from[name] = start
            if "pytest_" not in name:
                to_do.append(name)
            else:  # a hook, or a plugin, which affects some tests only
                came_from |= dict.fromkeys(self._imports(name), name) | came_from
        words: set[str] | None = None
        for name in to_do:  # grows
            if name in expanded:
                continue
            expanded.add(name)
            for around in self._within(name):
                came_from.setdefault(around, came_from[name])
            for target in self._imports(name):
                came_from.setdefault(target, name)
                to_do.append(target)
            for key, written in sorted(self.nodes[name].table):
                words = self._words(start) if words is None else words
                for target in self._resolve(written):
                    for leaf in (target, *self._within(target)):
                        came_from.setdefault(leaf, name)
                    if key in words:  # otherwise the test depends on the command's module, and not on what that imports
                        to_do.append(target)
        return came_from

    def _words(self, start: str) -> set[str]:
        """Of the strings of a test and its helpers."""
        found = {start: None}
        for name in (to_do := [start]):
            new = [each for each in self._imports(name) if each.startswith("tests.") and each not in found]
            found |= dict.fromkeys(new)
            to_do += new
        return {word for name in found for text in self.nodes[name].strings for word in text.split()}

    def _find_imports(self, name: str) -> Iterator[str]:
        node = self.nodes[name]
        for written in sorted(node.imports, reverse=True):  # a name before its module; never in the order of a set
            yield from self._resolve(written)
        for fixture in sorted(node.fixtures):
            yield from self._fixture(node.path, fixture, but=name)

    def _find(self, written: str) -> tuple[str, ...]:
        """The longest prefix that is a node."""
        name = written.replace(":", ".")
        if name.startswith(COLLECTION):
            name = "ansible." + name.removeprefix(COLLECTION)
        while name and name not in self.nodes:
            name = name.rpartition(".")[0]
        return (name,) if name else ()

    def _find_around(self, name: str) -> Iterator[str]:
        """Its module, and the packages around that: Python imports them first."""
        while name := name.rpartition(".")[0]:
            if name in self.nodes:
                yield name

    def _conftests(self, path: str) -> Iterator[str]:
        """Nearest first."""
        for folder in PurePosixPath(path).parents:
            if module_name(f"{folder}/conftest.py") in self.nodes:
                yield f"{folder}/conftest.py"

    def _fixture(self, path: str, fixture: str, but: str) -> Iterator[str]:
        """The nearest fixture of that name; one that overrides another may use it by the same name."""
        for conftest in self._conftests(path):
            name = f"{module_name(conftest)}.{fixture}"
            if name in self.nodes and name != but:
                yield name
                return

    def _around(self, test: str) -> Iterator[str]:
        """What all tests in the folders of a test depend on."""
        for conftest in self._conftests(test):
            yield from self._applying_to_all[conftest]


def module_name(path: str) -> str:
    """`provisioner/rules/__init__.py` is `provisioner.rules`."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def read_graph(root: Path, paths: Iterable[str], deleted: Collection[str] = ()) -> Graph:
    """Of all Python files in `paths`, which are relative to `root`."""
    nodes: dict[str, Node] = {}
    for path in paths:
        if path.endswith(".py") and path.startswith(tuple(f"{each}/" for each in ROOTS)):
            nodes |= _read_module(path, ast.parse((root / path).read_text(), path))
    return Graph(nodes, deleted)


def _read_module(path: str, tree: ast.Module) -> Iterator[tuple[str, Node]]:
    module = module_name(path)
    bound: dict[str, set[str]] = defaultdict(set)
    named: dict[str, list[ast.stmt]] = defaultdict(list)
    others: list[ast.stmt] = []
    as_program: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                for name, targets in _imported(path, statement).items():
                    bound[name] |= targets
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                named[name].append(statement)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                named[name].append(statement)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                as_program.append(statement)
            case _:
                others.append(statement)
    for name in named:
        bound[name].add(f"{module}.{name}")
    start = f"{module}.{ON_IMPORT}"
    nodes = {f"{module}.{name}": _read(path, statements, bound) for name, statements in named.items()}
    nodes[start] = _read(path, others, bound)
    used = set().union(*(_names(statement) for statement in tree.body))
    for name in bound.keys() - named.keys():  # what is imported from here, and what is imported for its effects
        nodes[f"{module}.{name}"] = Node(path, imports=set(bound[name]))
        nodes[start].imports |= set() if name in used else bound[name]
    for name, statements in named.items():
        for decorator in (each for statement in statements for each in getattr(statement, "decorator_list", ())):
            for registry in _names(decorator) & named.keys():  # `@group.command()` adds to the group
                nodes[f"{module}.{registry}"].imports.add(f"{module}.{name}")
    for each in nodes.values():
        each.imports.add(start)
    yield from nodes.items()
    whole = _read(path, as_program, bound)
    whole.imports |= {name for name, node in nodes.items() if not (node.is_fixture and path.endswith("/conftest.py"))}
    yield module, whole


def _read(path: str, statements: Iterable[ast.stmt], bound: Mapping[str, set[str]]) -> Node:
    node, inner = Node(path), set[ast.AST]()
    for each in (each for statement in statements for each in _walk(statement)):
        match each:
            case ast.Import() | ast.ImportFrom():
                node.imports.update(*_imported(path, each).values())
            case ast.Name(id=name):
                node.imports |= bound.get(name, set())
            case ast.Dict():
                node.table |= set(_entries(each))
            case ast.Constant(value=str(text)):
                node.strings.add(text)
            case ast.BinOp(op=ast.Div()) if each not in inner:
                node.strings.add(_composed(each, inner))
            case ast.Call(func=ast.Attribute(attr="usefixtures" | "getfixturevalue"), args=arguments):
                node.fixtures |= {text for argument in arguments if (text := _text(argument))}
            case ast.FunctionDef(name=name, args=ast.arguments(args=arguments, kwonlyargs=more)):
                decorators = " ".join(ast.unparse(decorator) for decorator in each.decorator_list)
                is_fixture = path.startswith("tests/") and "fixture" in decorators
                if is_fixture or name.startswith("test_"):
                    node.fixtures |= {argument.arg for argument in (*arguments, *more)}
                if each in statements:
                    node.is_fixture = is_fixture
                    node.applies_to_all = name.startswith("pytest_") or (is_fixture and "autouse" in decorators)
            case ast.Assign(targets=[ast.Name(id="pytest_plugins")]):
                node.applies_to_all = True
    on_use = {module for _, module in node.table}
    node.text = "\n".join(sorted(node.strings))
    node.imports |= {name for text in node.strings for name in _DOTTED.findall(text)} - on_use
    return node


def _walk(statement: ast.AST) -> Iterator[ast.AST]:
    """All nodes, outer ones first, without docstrings and without the annotations of functions."""
    for each in (to_do := [statement]):
        yield each
        if isinstance(each, ast.arg):
            continue
        for name, value in ast.iter_fields(each):
            children = value if isinstance(value, list) else [value]
            if name != "returns":
                to_do += [child for child in children if isinstance(child, ast.AST) and not _is_prose(child)]


def _is_prose(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and _text(statement.value) is not None


def _names(tree: ast.AST) -> set[str]:
    return {each.id for each in _walk(tree) if isinstance(each, ast.Name)}


def _text(expression: ast.AST | None) -> str | None:
    return expression.value if isinstance(expression, ast.Constant) and isinstance(expression.value, str) else None


def _imported(path: str, statement: ast.Import | ast.ImportFrom) -> dict[str, set[str]]:
    """Each name that the statement binds → what it imports for it."""
    if isinstance(statement, ast.Import):
        return {each.asname or each.name.partition(".")[0]: {each.name} for each in statement.names}
    package = ".".join(PurePosixPath(path).parts[: -statement.level]) if statement.level else ""
    module = ".".join(filter(None, (package, statement.module)))
    return {each.asname or each.name: {f"{module}.{each.name}"} for each in statement.names}


def _entries(literal: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(literal.keys, literal.values, strict=True):
        if (name := _text(key)) and (module := _DOTTED.match(_text(value) or "")):
            yield name, module[0]


def _composed(path: ast.BinOp, inner: set[ast.AST]) -> str:
    """`./images/node` of `ROOT / "images" / "node"`; notes in `inner` the paths that are part of it."""
    parts, left = [_text(path.right) or "*"], path.left
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
        inner.add(left)
        parts.append(_text(left.right) or "*")
        left = left.left
    return "/".join([".", *reversed(parts)])
