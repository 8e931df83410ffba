"""The demo of tenant networks: its packets where nobody enforces anything, and all of it, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.binaries.obtain import Binaries
from lab.cli.parts import demo_state
from lab.cli.vpc import clean
from lab.demo.state import DemoState
from lab.vpc_demo import site
from lab.vpc_demo.network import create_network, host_of
from lab.vpc_demo.packets import connect, ping, send_as
from lab.vpc_demo.trial import ANSWER, HEARD, NOT_HEARD, NOTHING, REFUSAL
from tests.tools import installed, need_root


@pytest.fixture
def state(unique: str) -> Iterator[DemoState]:
    need_root("make network namespaces")
    for program in ("ip", "nft", "nsenter"):
        installed(program)
    made = demo_state(unique)
    yield made
    clean(made)
    made.remove_directory()


def namespaces_of(state: DemoState) -> list[str]:
    return [path.name for path in Path("/run/netns").iterdir() if state.namespace in path.name]


def test_without_a_tenants_network_a_host_lies_is_refused_and_is_heard(state: DemoState) -> None:
    """What the demo tries succeeds where nobody enforces anything: two hosts on one cable."""
    rack = create_network(state)
    one, two = (host_of(state, each) for each in site.HOSTS[:2])
    rack.cable(one, "side", two, "side")
    for host, own in ((one, "10.1.0.2"), (two, "10.1.0.3")):
        host.ip("link", "delete", "eth0")
        host.ip("link", "set", "side", "down")
        host.ip("link", "set", "side", "name", "eth0", "up")
        host.ip("addr", "add", f"{own}/24", "dev", "eth0")
    assert ping(one, "10.1.0.3") == ANSWER
    assert ping(one, "10.1.0.9") == NOTHING
    assert connect(one, "10.1.0.3", 80) == REFUSAL
    assert send_as(one, two, "10.1.0.3") == HEARD
    assert send_as(one, two, "10.1.0.3", address="10.1.0.5") == HEARD
    assert send_as(one, two, "10.1.0.3", mac="52:54:00:00:09:09") == HEARD
    assert send_as(two, one, "10.1.0.9") == NOT_HEARD
    assert len(namespaces_of(state)) == 1 + 1 + len(site.CARDS) + len(site.HOSTS)
    clean(state)
    assert namespaces_of(state) == []


def test_the_demo_is_as_it_must_be_and_leaves_nothing(state: DemoState, binaries: Binaries) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "lab.cli", "vpc", "--name", state.name],
        env={**os.environ, "PYTHONPATH": ":".join(each for each in sys.path if each)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    tried = [each for each in lines if each.startswith(("  ok ", "  WRONG "))]
    assert len(tried) >= 40
    assert lines[-1] == f"{len(tried)} of {len(tried)} are as they must be"
    assert namespaces_of(state) == []
    assert not state.directory.exists()
