"""The demo of tenant networks: how it judges what its packets do, and all of it, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.api import DPU, VPC, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.codec import decode
from provisioner.api.errors import NeedsHuman
from provisioner.cli.lab.parts import demo_state
from provisioner.cli.lab.vpc import clean
from provisioner.lab.binaries.obtain import Binaries
from provisioner.lab.demo.state import DemoState
from provisioner.lab.vpc_demo import site
from provisioner.lab.vpc_demo.network import create_network, host_of, require_programs
from provisioner.lab.vpc_demo.packets import connect, is_echo_request, ping, send_as
from provisioner.lab.vpc_demo.residue import Shown, differing, residue
from provisioner.lab.vpc_demo.stage import line, summary
from provisioner.lab.vpc_demo.trial import ANSWER, HEARD, NOT_HEARD, NOTHING, REFUSAL, Result, Trial, carry_out
from tests.tools import installed, need_root

ECHO = bytes.fromhex(
    "02005e000101" "525400000100" "0800" "4500001c00004000400100000a0100030a010007" "0800f7ff00000000"
)  # fmt: skip


def a_trial(must: str, *outcomes: str, within_seconds: float = 0.0) -> Trial:
    left = list(outcomes)
    return Trial("blue r01-u01", "ping 10.1.0.5", must, lambda: left.pop(0), within_seconds)


class Clock:
    """Time passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def judged(trial: Trial) -> Result:
    clock = Clock()
    return carry_out(trial, clock, clock.sleep)


def test_what_must_be_so_already_is_tried_once() -> None:
    assert judged(a_trial(ANSWER, ANSWER)).is_right
    wrong = judged(a_trial(NOTHING, ANSWER, NOTHING))
    assert (wrong.is_right, wrong.did) == (False, ANSWER)


def test_a_change_is_waited_for_and_not_for_ever() -> None:
    became = judged(a_trial(ANSWER, NOTHING, NOTHING, ANSWER, within_seconds=1))
    assert (became.is_right, became.seconds) == (True, pytest.approx(0.2))
    never = judged(a_trial(ANSWER, *[NOTHING] * 20, within_seconds=1))
    assert (never.is_right, never.did) == (False, NOTHING)


def test_one_lost_packet_is_no_silence() -> None:
    became = judged(a_trial(NOTHING, ANSWER, NOTHING, ANSWER, NOTHING, NOTHING, within_seconds=1))
    assert became.is_right
    assert not judged(a_trial(NOTHING, *[ANSWER, NOTHING, ANSWER] * 10, within_seconds=1)).is_right


def test_a_line_says_what_was_tried_what_must_come_of_it_and_what_did() -> None:
    right = Result(a_trial(NOTHING, within_seconds=20), NOTHING, 0.94)
    assert line(right).split() == [
        "ok",
        "blue",
        "r01-u01",
        "ping",
        "10.1.0.5",
        "must:",
        "nothing",
        "did:",
        "nothing",
        "0.9",
        "s",
    ]
    wrong = Result(a_trial(NOTHING), ANSWER, 0.0)
    assert line(wrong).split() == [
        "WRONG",
        "blue",
        "r01-u01",
        "ping",
        "10.1.0.5",
        "must:",
        "nothing",
        "did:",
        "an",
        "answer",
    ]
    assert summary([right]) == "1 of 1 are as they must be"
    assert summary([right, wrong]).splitlines() == ["1 of 2 are as they must be", line(wrong)]


def test_the_objects_are_such_as_the_api_knows() -> None:
    kinds = {each.KIND.kind: each for each in (DPU, NetworkPool, Server, VPC, VPCAttachment, SecurityGroup)}
    objects = [*site.registration(), *site.wishes("blue"), *site.wishes("green"), site.web_group()]
    decoded = [decode(kinds[each["kind"]], each) for each in objects if each["kind"] in kinds]
    attached = {(each.metadata.namespace, each.name): each for each in decoded if isinstance(each, VPCAttachment)}
    assert len(attached) == len(site.HOSTS)
    for server in ("r01-u01", "r01-u02"):
        assert attached["blue", server].spec.addresses == attached["green", server].spec.addresses


def test_an_echo_request_is_told_from_what_else_a_host_hears() -> None:
    assert is_echo_request(ECHO, "10.1.0.3", "10.1.0.7")
    assert not is_echo_request(ECHO, "10.1.0.5", "10.1.0.7")
    assert not is_echo_request(ECHO, "10.1.0.3", "10.1.0.5")
    assert not is_echo_request(ECHO[:34] + b"\0" + ECHO[35:], "10.1.0.3", "10.1.0.7"), "an answer"
    assert not is_echo_request(ECHO[:20], "10.1.0.3", "10.1.0.7")


def test_a_port_is_no_residue_and_all_else_is() -> None:
    port = {"kind": "port", "name": "pf0hpf", "mac": "02:00:5e:00:01:01"}
    clean: Shown = {".": {"links": [port], "sysctls": [{"path": "x"}], "chains": []}}
    assert residue(clean) == []
    used: Shown = {".": {**clean["."], "links": [port, {"kind": "vxlan"}]}, "vpc-10000": {"links": [port]}}
    assert residue(used) == [".: links", "vpc-10000: links"]
    assert differing(clean, {".": {**clean["."], "links": [{**port, "mac": None}]}}) == []
    assert differing(clean, used) == [".: links", "vpc-10000: links"]


def test_a_program_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(NeedsHuman, match="nft is not on this machine") as raised:
        require_programs(lambda name: None if name == "nft" else name)
    assert raised.value.hint == "apt-get install nftables"


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
        [sys.executable, "-m", "provisioner.cli", "lab", "vpc", "--name", state.name],
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
