"""Which test files a change affects, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from tests.changed.graph import ON_IMPORT, ROOTS, Graph, Node, module_name

AFFECTS_ALL: Final = ("pyproject.toml", "requirements/", "Makefile", "bin/setup")
"""Files, and folders, that every test depends on."""
TESTS_OF: Final[Mapping[str, str]] = {
    "artefacts": "packaging", "images": "image", "ipxe": "boot", "charts": "chart", "docs": "website", "bin": "cli"
}  # fmt: skip
"""Folders of the checkout whose tests have another name. Those of packages are in tests/<package>."""
_TEST_FILE: Final = re.compile(r"\btests/(?:\w+/)*test_\w+\.py")


def is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).match("test_*.py")


def choose(graph: Graph, changed: Iterable[str]) -> dict[str, str]:
    """Test file → reason. `changed`: paths relative to the checkout, those of deleted files too."""
    tests = sorted(path for path in graph.files if is_test(path))
    reached = {test: graph.reached_from(test) for test in tests}
    chosen: dict[str, str] = {}
    for path in sorted(changed):
        if path.startswith(AFFECTS_ALL):
            return dict.fromkeys(tests, f"every test depends on {path}")
        for test, reason in _affected(path, graph, reached):
            chosen.setdefault(test, reason)
    return dict(sorted(chosen.items()))


def _affected(path: str, graph: Graph, reached: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    if path in reached:
        yield path, "changed"
    if PurePosixPath(path).name == "conftest.py":
        folder = path.removesuffix("conftest.py")
        yield from ((test, f"is below {path}") for test in reached if test.startswith(folder))
    module, readers = module_name(path), _readers(path, graph.nodes)
    if path.endswith(".py"):
        texts = (text for name, node in graph.nodes.items() if node.path == path for text in node.strings)
        named = {test for text in texts for test in _TEST_FILE.findall(text)}
        yield from ((test, f"is named by {path}") for test in named & reached.keys())
        readers[module] = f"imports {path}"
    folder, found_there = _folder_of_tests(path), path.endswith(".py")
    for test, came_from in reached.items():
        for node in came_from:  # nearest first
            if node in readers:
                yield test, _reason(test, node, came_from, readers[node])
                found_there = found_there or test.startswith(folder)
                break
    if not found_there:
        yield from ((test, f"no test in {folder} names {path}") for test in reached if test.startswith(folder))


def _readers(path: str, nodes: Mapping[str, Node]) -> dict[str, str]:
    """The nodes that name a file, its folder, or a pattern that includes it → how."""
    file = PurePosixPath(path)
    pattern = _pattern(file)
    found: dict[str, str] = {}
    for name, node in nodes.items():
        if file.name in node.text or file.parent.name in node.text:
            beside = PurePosixPath(node.path).parent == file.parent and file.name in node.strings
            if beside or pattern.search(node.text):
                found[name] = f"names {path}"
                continue
        if "*." not in node.text:
            continue
        globs = [each for each in node.text.split("\n") if each.startswith("*.") and file.match(each)]
        if globs and _knows_folder(node.path, file, nodes):
            found[name] = f"reads {', '.join(globs)}"
    return found


def _knows_folder(module: str, file: PurePosixPath, nodes: Mapping[str, Node]) -> bool:
    """Whether a module lies in, names, or imports a folder around a file."""
    folders = {str(each) for each in file.parents} - {"."}
    packages = {each.replace("/", ".") for each in folders}
    named = {
        each for node in nodes.values() if node.path == module
        for each in (*(text.removeprefix("./") for text in node.strings if "/" in text), *node.imports)
    }  # fmt: skip
    return PurePosixPath(module).parent in file.parents or not named.isdisjoint(folders | packages)


def _pattern(file: PurePosixPath) -> re.Pattern[str]:
    """Finds strings that name the file or its folder."""
    # `lease`, `run` and `agent.py` are names of many things: those count with their folder.
    name = "/".join(file.parts[-2:] if file.suffix in ("", ".py") else file.parts[-1:])
    forms = [rf"(?<![\w.-]){re.escape(name)}(?!\.?[\w-])"]
    if file.suffix != ".py":
        folder = re.escape("/".join(file.parent.parts[-2:]))
        if "/" in folder:
            forms.append(rf"(?<![\w.-]){folder}/?$")
        # A single word is a folder where a path is composed of it: `ROOT / "docs"`.
        if file.parent.name and (file.parent.name not in ROOTS or "/" not in folder):
            forms.append(rf"^\./(?:.*/)?{re.escape(file.parent.name)}(?:/\*)*$")
    return re.compile("|".join(forms), re.MULTILINE)


def _folder_of_tests(path: str) -> str:
    """`tests/image/`, of a file in images/, provisioner/image/, tests/image/ or tests/golden/image/."""
    top, *below = PurePosixPath(path).parts
    if (top, *below[:1]) == ("tests", "golden"):
        below = below[1:]
    package = below[0] if top in ("provisioner", "tests") and len(below) > 1 else TESTS_OF.get(top, top)
    return f"tests/{package}/"


def _reason(test: str, node: str, came_from: Mapping[str, str], how: str) -> str:
    """In words: the way from the test to a node, which `how` describes."""
    own = module_name(test)
    if node == own or node.startswith(f"{own}."):
        return how
    step = how if how.startswith("imports") else f"imports {node.removesuffix(ON_IMPORT).rstrip('.')}, which {how}"
    through = came_from[node].removesuffix(f".{ON_IMPORT}")
    direct = through == own or through.startswith(f"{own}.") or node.startswith(f"{through}.")
    return step if direct else f"{step}, through {through}"
