"""Assertions that prove nothing, found in the source of the tests.

no assertion       a test that asserts nothing, itself or by a function of the tests that it calls
nothing to fail    `assert all(… for each in these)`, or `not any`, where nothing shows that there are any
always true        a constant, `x or not x`, `x == x`
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_ASSERTING: Final = frozenset({"raises", "warns", "fail", "expect"})
"""Of pytest and Playwright."""
_SAME_LENGTH: Final = frozenset({"sorted", "list", "set", "tuple", "reversed", "enumerate", "values", "items", "keys"})


@dataclass(frozen=True)
class _Function:
    """A function of the tests; `called`: by name, and `methods` by the name behind the dot."""

    name: str
    line: int
    asserts: tuple[ast.Assert, ...]
    raises: bool
    called: frozenset[str]
    methods: frozenset[str]
    values: Mapping[str, ast.expr]
    """Of its variables."""

    def asserts_something(self, names: Collection[str], methods: Collection[str]) -> bool:
        calls = self.called | self.methods
        return bool(self.asserts) or self.raises or not _ASSERTING.isdisjoint(calls) or not (
            self.called.isdisjoint(names) and self.methods.isdisjoint(methods)
        )  # fmt: skip


def find_empty_assertions(tests: Mapping[str, str], names_of_product: Collection[str] = ()) -> list[str]:
    """What the tests have of that, one line each. tests: path → source.

    names_of_product: its functions. A method of such a name asserts nothing, though that of a test's fake may.
    """
    functions = {path: _read_functions(ast.parse(source)) for path, source in tests.items()}
    asserting = _asserting_functions([each for of_file in functions.values() for each in of_file])
    methods = asserting - set(names_of_product)
    found = set()
    for path, of_file in functions.items():
        if not path.rpartition("/")[2].startswith("test_"):
            continue
        for each in of_file:
            if each.name.startswith("test_") and not each.asserts_something(asserting, methods):
                found.add(f"{path}:{each.line}: no assertion")
            found |= {f"{path}:{a.lineno}: always true" for a in each.asserts if _is_always_true(a.test)}
            found |= {f"{path}:{line}: nothing to fail" for line in _over_perhaps_nothing(each)}
    return sorted(found)


def _read_functions(tree: ast.Module) -> list[_Function]:
    return [_read(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _read(function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Function:
    asserts, raises, called, methods, values = [], False, set(), set(), {}
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                asserts.append(node)
            case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
                raises = True
            case ast.Call(func=ast.Name(id=name)):
                called.add(name)
            case ast.Call(func=ast.Attribute(attr=name)):
                methods.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
    return _Function(
        function.name, function.lineno, tuple(asserts), raises, frozenset(called), frozenset(methods), values
    )


def _asserting_functions(functions: Collection[_Function]) -> set[str]:
    """Names of functions that assert something, themselves or by one that they call."""
    names: set[str] = set()
    while more := {each.name for each in functions if each.name not in names and each.asserts_something(names, names)}:
        names |= more
    return names


def _is_always_true(test: ast.expr) -> bool:
    match test:
        case ast.Constant() | ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.Lambda() | ast.GeneratorExp():
            return True
        case ast.BoolOp(op=ast.Or(), values=values):
            words = {ast.unparse(value) for value in values}
            return any(_negated(value) in words or _is_always_true(value) for value in values)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return ast.unparse(left) == ast.unparse(right) and "(" not in ast.unparse(left)
    return False


def _negated(value: ast.expr) -> str | None:
    return ast.unparse(value.operand) if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not) else None


def _over_perhaps_nothing(function: _Function) -> Iterator[int]:
    """Lines of `assert all(…)` and `assert not any(…)` over what may be nothing."""
    over = {each: list(_iterated(each.test)) for each in function.asserts}
    shown = {name for each, of in over.items() if not of for name in _names(each.test)}
    for each, iterated in over.items():
        if any(_names(of).isdisjoint(shown) and not _has_some(of, function.values) for of in iterated):
            yield each.lineno


def _iterated(test: ast.expr) -> Iterator[ast.expr]:
    """What `all` and `not any` of a condition go through."""
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        is_not = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        match part.operand if is_not else part:
            case ast.Call(func=ast.Name(id=name), args=[of]) if name == ("any" if is_not else "all"):
                yield of


def _has_some(of: ast.expr, values: Mapping[str, ast.expr]) -> bool:
    """Whether the source shows that there is something in it. values: of the function's variables."""
    match of:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return any(not isinstance(each, ast.Starred) or _has_some(each.value, values) for each in elements)
        case ast.Dict(keys=keys):
            return any(key is not None for key in keys)
        case ast.Constant() | ast.Call(func=ast.Name(id="range")):
            return True
        case ast.Name(id=name) if name.isupper():
            return True
        case ast.Name(id=name) if name in values:
            return _has_some(values[name], {key: value for key, value in values.items() if key != name})
        case ast.GeneratorExp(generators=parts) | ast.ListComp(generators=parts) | ast.SetComp(generators=parts):
            return not any(part.ifs for part in parts) and all(_has_some(part.iter, values) for part in parts)
        case ast.Subscript(value=inner, slice=ast.Slice()):
            return _has_some(inner, values)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _SAME_LENGTH:
            return _has_some(inner, values)
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _SAME_LENGTH:
            return _has_some(inner, values)
    return False


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _SAME_LENGTH - {"len", "range", "zip"}
