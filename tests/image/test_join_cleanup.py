"""The units that remove what the join needed, held against the agent that writes it."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path

import pytest

from provisioner.image.recipe import read_recipe
from provisioner.node.join_files import is_joined, render_files, write_files
from provisioner.node.machine.boot_facts import request_key
from tests.image.samples import CPU, NODE, enabled_units
from tests.node.machine import CONFIGURATION, TOKEN

pytestmark = pytest.mark.programs

UNITS = NODE / "tree/etc/systemd/system"
KEY = "ab" * 32


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / name)
    return parser


def after_the_join(root: Path) -> None:
    """The files that the agent leaves behind, as the image's agent writes them."""
    (root / "run/provisioner").mkdir(parents=True)
    assert request_key(str(root), lambda count: bytes.fromhex(KEY)) == KEY
    write_files(str(root), render_files(dict(CONFIGURATION)))


def holding_a_secret(root: Path) -> set[str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.name for path in files if any(secret in path.read_text() for secret in (TOKEN, KEY))}


def test_the_cleanup_removes_every_file_of_the_agent_that_holds_a_secret(tmp_path: Path) -> None:
    after_the_join(tmp_path)
    assert holding_a_secret(tmp_path) == {"bootstrap.kubeconfig", "request-key"}
    program, *arguments = unit("provisioner-join-cleanup.service")["Service"]["ExecStart"].split()
    assert program == "/usr/bin/rm"
    there = [argument if argument.startswith("-") else f"{tmp_path}{argument}" for argument in arguments]
    for _ in range(2):
        subprocess.run(["rm", *there], check=True)
        assert holding_a_secret(tmp_path) == set()
    left = {path.name for path in (tmp_path / "run/provisioner/kubelet").iterdir()}
    assert left == {"ca.crt", "kubelet.yaml", "kubelet.env"}, "what the kubelet starts with stays"


def test_the_cleanup_waits_for_what_the_agent_takes_as_joined(tmp_path: Path) -> None:
    after_the_join(tmp_path)
    assert not is_joined(str(tmp_path))
    awaited = unit("provisioner-join-cleanup.path")["Path"]["PathExists"]
    Path(f"{tmp_path}{awaited}").touch()
    assert is_joined(str(tmp_path))


def test_the_cleanup_is_enabled() -> None:
    assert ("multi-user.target", "provisioner-join-cleanup.path") in enabled_units(read_recipe(CPU).root)
