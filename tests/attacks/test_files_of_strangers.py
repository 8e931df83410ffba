"""A supplier's packing list, a trace or a list of vulnerabilities that was made to end the command that reads it, or to
write on the terminal of whoever runs it. docs/threat-model.md, "Ports of monitoring, and operators' tools".

What would end the process runs in one of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from provisioner.api.machinery import documents
from provisioner.api.machinery.documents import MOST_DEPTH, Unreadable, read_csv, read_json, read_yaml
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cli import printer
from provisioner.cli.main import provisioner
from provisioner.image.gates.packages.osv import read_vulnerabilities
from provisioner.rollout.simulate.trace import read_trace

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{last}'] * 10)}]\n" for last, this in zip("abcdefgh", "bcdefghi", strict=True)
)
OBJECT = "apiVersion: provisioner.dev/v1alpha1\nkind: Server\n"
BOMBS = {
    "nested in brackets": "[" * 100_000,
    "nested in braces": "{a: " * 100_000,
    "nested by indentation": "".join(" " * depth + "a:\n" for depth in range(2000)),
    "nested by dashes": "- " * 50_000 + "x",
    "a part of itself": "rack: &a {name: r01, labels: *a}\n",
    "a list of itself": "servers: &a [*a]\n",
    "a value that is itself": f"{OBJECT}metadata: &a {{name: x, labels: {{a: *a}}}}\n",
    "aliases of aliases": ALIASES,
    "a control character": "rack: \x01\n",
    "an alias of nothing": "rack: *nothing\n",
    "a key that is a list": "? [rack, servers]\n: x\n",
    "an object whose kind is a list": "kind: [Server]\n",
    "a list of no objects": "kind: List\nitems: [x, [y], {z: 1}]\n",
    "labels that are lists": f"{OBJECT}metadata: {{name: x, labels: {{a: [b]}}}}\nspec: {{}}\n",
    "a number of many digits": f"rack: {{name: r01, subnets: [{{mtu: {'9' * 9000}}}]}}\n",
}


def register(text: str, folder: Path) -> Result:
    file = folder / "list.yaml"
    file.write_text(text)
    return CliRunner().invoke(provisioner, ["rack", "register", str(file), "--dry-run", "--kubeconfig", "/nowhere"])


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_packing_list_that_was_made_to_end_the_command_is_a_mistake_in_a_line(bomb: str, tmp_path: Path) -> None:
    result = register(BOMBS[bomb], tmp_path)
    assert result.exit_code == 2, f"{result.exception!r} {result.output}"
    assert "nothing was registered" in result.output
    assert len(result.output) < 4000


@pytest.mark.programs
@pytest.mark.parametrize(
    ("bomb", "ends"),
    [("nested in brackets", "status -11, "), ("aliases of aliases", "status 1, MemoryError")],
)
def test_a_packing_list_ends_the_process_without_the_bounds(bomb: str, ends: str, tmp_path: Path) -> None:
    """By a fault in C, or with all the memory that it may have; an honest one does not."""
    file = tmp_path / "list.yaml"
    program = (
        "import resource, sys, yaml; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28));"
        "node = yaml.compose(open(sys.argv[1]), Loader=yaml.CSafeLoader); str(node.value)"
    )

    def end() -> str:
        run = subprocess.run(
            [sys.executable, "-c", program, str(file)], check=False, capture_output=True, text=True, timeout=300
        )
        return f"status {run.returncode}, {''.join(run.stderr.splitlines()[-1:])}"

    file.write_text("rack: &a {name: r01}\nsubnets: [*a, *a]\n")
    assert end() == "status 0, "
    file.write_text(BOMBS[bomb])
    assert end() == ends


def test_an_honest_list_is_read_with_its_aliases() -> None:
    text = "base: &base {mtu: 9000}\nsubnets: [{name: boot, settings: *base}, {name: other, settings: *base}]\n"
    assert read_yaml(text) == yaml.safe_load(text)
    deep = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    assert read_yaml(deep) == read_json(deep)
    with pytest.raises(Unreadable, match="nested"):
        read_yaml(f"[{deep}]")
    assert list(read_csv('a,"b\nc"\nd,e\n')) == [(1, ["a", "b\nc"]), (3, ["d", "e"])]


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, "9" * 9000, "\ud800", '{"a": 1', "", "[1e999, \x01]"],
    ids=["brackets", "braces", "digits", "half a letter", "no end", "nothing", "control"],
)
def test_json_that_was_made_to_end_a_command_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read_json(text)
    file = tmp_path / "osv.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises((ProvisionerError, UnicodeDecodeError)):
        list(read_vulnerabilities(file))


def test_what_is_larger_than_may_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(documents.within, "__defaults__", (100,))
    monkeypatch.setattr(documents.read_bytes, "__defaults__", (100,))
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,duration,num_gpus\n" + "0,1,1\n" * 100)
    with pytest.raises(ProvisionerError, match="more than 100 bytes"):
        read_trace(trace)
    with pytest.raises(Unreadable, match="more than 100 bytes"):
        read_yaml("a: b\n" * 100)


ORDER = "\\e[2J\\u202E\\x9B"
WRITERS: dict[str, Any] = {
    "a field": f'rack: {{name: r01}}\nservers: [{{name: x, "y{ORDER}": z}}]\n',
    "a name": f'rack: {{name: r01}}\nservers: [{{name: "x{ORDER}", bootMACAddress: "{ORDER}"}}]\n',
    "a kind": f'apiVersion: v1\nkind: "{ORDER}"\nmetadata: {{name: x}}\n',
    "a version": f'apiVersion: "{ORDER}"\nkind: Server\nmetadata: {{name: x}}\nspec: {{}}\n',
    "a line of its own": 'rack: {name: r01}\nservers: [{name: x, "y\\nerror: call 555": z}]\n',
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_packing_list_says_is_shown_as_words_in_one_line(writer: str, tmp_path: Path) -> None:
    result = register(WRITERS[writer], tmp_path)
    assert result.exit_code == 2, result.output
    assert all(c.isprintable() or c == "\n" for c in result.output), repr(result.output)
    assert not any(line.startswith("error: call") for line in result.output.splitlines())


def test_what_a_packing_list_says_reaches_the_terminal_without_the_printer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printer, "plain", str)
    assert "\x9b" in register(WRITERS["a field"], tmp_path).output
