"""Which tests a change selects: in a made-up project, and in this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.changed.__main__ import ROOT, describe
from tests.changed.choose import choose, is_test
from tests.changed.graph import ROOTS, Graph, read_graph

pytestmark = pytest.mark.slow

FILES: Final[Mapping[str, str]] = {
    "provisioner/rules/__init__.py": "",
    "provisioner/rules/liveness.py": "LIMIT = 3\n",
    "provisioner/rules/rate.py": "LIMIT = 4\n",
    "provisioner/health/watch.py": "from provisioner.rules.liveness import LIMIT\n",
    "provisioner/power/reset.py": "def reset() -> None:\n    from provisioner.rules.rate import LIMIT\n",
    "provisioner/boot/render.py": 'TEMPLATES = ROOT / "ipxe"\nTEXT = read("script.j2")\n',
    "provisioner/boot/script.j2": "",
    "provisioner/boot/data/lease": "",
    "provisioner/cli/main.py": """
        COMMANDS = {"watch": "provisioner.cli.watch:watch", "reset": "provisioner.cli.reset:reset"}
        def main(arguments): return COMMANDS[arguments[0]]
    """,
    "provisioner/cli/watch.py": "import provisioner.health.watch\n",
    "provisioner/cli/reset.py": "import provisioner.power.reset\n",
    "provisioner/node/agent.py": "import provisioner.rules.rate\n",
    "ipxe/boot.ipxe.j2": "",
    "images/node/recipe.toml": "",
    "images/node/tree/etc/motd": "",
    "docs/jobs.md": "",
    "README.md": "",
    "bin/setup": "",
    "tests/conftest.py": """
        import pytest
        from provisioner.power.reset import reset

        @pytest.fixture
        def plane():
            from provisioner.health.watch import watch
            return watch

        @pytest.fixture
        def power():
            return reset

        def pytest_configure():
            import provisioner.boot.render
    """,
    "tests/rules/test_liveness.py": "from provisioner.rules import liveness\n",
    "tests/rules/helper.py": "from provisioner.rules.rate import LIMIT\n",
    "tests/rules/test_rate.py": "from tests.rules.helper import LIMIT\n",
    "tests/health/test_watch.py": "def test_it(plane): ...\n",
    "tests/power/test_reset.py": "def test_it(power): ...\n",
    "tests/boot/conftest.py": """
        import pytest

        @pytest.fixture(autouse=True)
        def site():
            from provisioner.rules import liveness
    """,
    "tests/boot/test_render.py": "from provisioner.boot import render\n",
    "tests/boot/dhcp/test_lease.py": "",
    "tests/cli/test_watch.py": 'from provisioner.cli.main import main\nmain(["watch", "--all"])\n',
    "tests/node/test_agent.py": 'command = [python, "-m", "provisioner.node.agent"]\n',
    "tests/image/test_recipe.py": 'RECIPE = ROOT / "images" / "node" / "recipe.toml"\n',
    "tests/image/test_motd.py": "",
    "tests/website/test_site.py": "from website.hooks import pages\n",
    "tests/jobs/test_guide.py": '"""Not docs/jobs.md."""\nGUIDE = "docs/jobs.md"\n',
    "tests/attacks/table.py": 'TABLE = {"tests/power/test_reset.py::test_it": 1}\n',
    "website/hooks.py": 'pages = {"README.md": "index.md"}\n',
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("\n".join(line.removeprefix("        ") for line in text.split("\n")))
    return root


@pytest.fixture(scope="module")
def graph(project: Path) -> Graph:
    return read_graph(project, FILES)


@pytest.mark.parametrize(
    ("changed", "selected"),
    {
        "a module: direct and indirect importers, users of a fixture, tests around an autouse fixture, a command": (
            ["provisioner/rules/liveness.py"],
            "boot/dhcp/test_lease boot/test_render cli/test_watch health/test_watch rules/test_liveness",
        ),
        "an import inside a function, a helper of tests, a module that runs as a program, a fixture": (
            ["provisioner/rules/rate.py"], "node/test_agent power/test_reset rules/test_rate"
        ),
        "a package": (["provisioner/rules/__init__.py"], (
            "boot/dhcp/test_lease boot/test_render cli/test_watch health/test_watch node/test_agent power/test_reset "
            "rules/test_liveness rules/test_rate"
        )),
        "a command: the tests that use its group": (["provisioner/cli/reset.py"], "cli/test_watch"),
        "what only another command imports": (["provisioner/power/reset.py"], "power/test_reset"),
        "a test": (["tests/health/test_watch.py"], "health/test_watch"),
        "a helper of tests": (["tests/rules/helper.py"], "rules/test_rate"),
        "a conftest.py: all tests below it": (["tests/boot/conftest.py"], "boot/dhcp/test_lease boot/test_render"),
        "a table that names tests": (["tests/attacks/table.py"], "power/test_reset"),
        "a data file that a module names": (["provisioner/boot/script.j2"], "boot/test_render"),
        "a data file in a folder that a module names": (["ipxe/boot.ipxe.j2"], "boot/test_render"),
        "a data file that a test names": (["images/node/recipe.toml"], "image/test_recipe"),
        "a data file that nothing names: the folder of its package": (
            ["images/node/tree/etc/motd"], "image/test_motd image/test_recipe"
        ),
        "another one, in a package": (["provisioner/boot/data/lease"], "boot/dhcp/test_lease boot/test_render"),
        "a document that a test names in code, not in prose, and the tests of the documentation": (
            ["docs/jobs.md"], "jobs/test_guide website/test_site"
        ),
        "a document that the site names": (["README.md"], "website/test_site"),
        "several": (["tests/jobs/test_guide.py", "README.md"], "jobs/test_guide website/test_site"),
        "a file that nothing names": (["LICENSE"], ""),
        "nothing": ([], ""),
    }.values(),
)  # fmt: skip
def test_a_change_selects_the_tests_that_depend_on_it(graph: Graph, changed: Sequence[str], selected: str) -> None:
    assert sorted(choose(graph, changed)) == [f"tests/{each}.py" for each in selected.split()]


@pytest.mark.parametrize("path", ["pyproject.toml", "requirements/runtime.txt", "Makefile", "bin/setup"])
def test_what_every_test_depends_on_selects_everything_and_says_so(graph: Graph, path: str) -> None:
    every = [each for each in FILES if is_test(each)]
    chosen = choose(graph, ["tests/health/test_watch.py", path])
    assert sorted(chosen) == sorted(every)
    assert describe(chosen, len(every), changed=2, since="main") == [
        f"2 changed files since main: running all {len(every)} test files, because every test depends on {path}."
    ]


@pytest.mark.parametrize("path", ["provisioner/rules/liveness.py", "tests/rules/helper.py", "ipxe/boot.ipxe.j2"])
def test_a_deleted_file_selects_what_still_names_it(project: Path, graph: Graph, path: str) -> None:
    without = read_graph(project, FILES.keys() - {path}, deleted=[path])
    assert choose(without, [path]) == choose(graph, [path])


def test_a_deleted_test_selects_nothing(project: Path) -> None:
    path = "tests/health/test_watch.py"
    assert choose(read_graph(project, FILES.keys() - {path}, deleted=[path]), [path]) == {}


def test_each_reason_names_the_way_to_the_change(graph: Graph) -> None:
    assert choose(graph, ["provisioner/rules/liveness.py"]) | choose(graph, ["ipxe/boot.ipxe.j2", "docs/jobs.md"]) == {
        "tests/boot/dhcp/test_lease.py": "imports provisioner/rules/liveness.py, through tests.boot.conftest.site",
        "tests/boot/test_render.py": "imports provisioner.boot.render.TEMPLATES, which names ipxe/boot.ipxe.j2",
        "tests/cli/test_watch.py": "imports provisioner/rules/liveness.py, through provisioner.health.watch.LIMIT",
        "tests/health/test_watch.py": "imports provisioner/rules/liveness.py, through provisioner.health.watch.LIMIT",
        "tests/jobs/test_guide.py": "names docs/jobs.md",
        "tests/rules/test_liveness.py": "imports provisioner/rules/liveness.py",
        "tests/website/test_site.py": "no test in tests/website/ names docs/jobs.md",
    }


def test_twenty_reasons_are_shown_and_the_others_counted() -> None:
    lines = describe({f"tests/test_{number}.py": "changed" for number in range(22)}, 30, 22, "main")
    assert (len(lines), lines[0], lines[-1]) == (
        22, "22 changed files since main: 22 of 30 test files depend on them.", "  and 2 more"
    )  # fmt: skip


@pytest.fixture(scope="module")
def checkout() -> Graph:
    paths = [path.relative_to(ROOT).as_posix() for folder in ROOTS
             for path in (ROOT / folder).rglob("*.py")]  # fmt: skip
    return read_graph(ROOT, paths)


@pytest.mark.parametrize(
    ("changed", "selected", "others"),
    [
        ("provisioner/rules/liveness.py", ["rules/test_liveness.py", "maintenance/"], ["website/", "outbound/"]),
        ("provisioner/cli/fleet/move_command.py", ["cli/"], ["boot/", "node/"]),
        ("provisioner/node/tpm/device.py", ["node/tpm/"], ["rollout/", "website/"]),
        ("ipxe/boot.ipxe.j2", ["boot/"], ["power/", "rollout/"]),
        ("docs/threat-model.md", ["attacks/test_catalogue.py", "website/"], ["rollout/", "power/"]),
        ("images/node/stage1/init", ["image/"], ["power/", "rollout/"]),
        ("charts/provisioner/values.yaml", ["chart/"], ["boot/", "rules/"]),
        ("tests/boot/conftest.py", ["boot/"], ["power/", "website/"]),
    ],
)  # fmt: skip
def test_facts_of_this_checkout(checkout: Graph, changed: str, selected: Sequence[str], others: Sequence[str]) -> None:
    chosen = choose(checkout, [changed])
    assert [each for each in selected if not any(test.startswith(f"tests/{each}") for test in chosen)] == []
    assert [test for test in chosen if test.startswith(tuple(f"tests/{each}" for each in others))] == []
