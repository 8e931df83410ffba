"""Which ports are isolated for an operation that was refused. Pure."""

from __future__ import annotations

from typing import Literal

import pytest

from provisioner.network.agent.blame import Blame
from provisioner.network.agent.model.state import HOME, Address, Route, Sysctl
from provisioner.network.agent.operations import (
    AddNamespace,
    ChangeLink,
    DeleteNamespace,
    LoadChains,
    Operation,
    OperationRefused,
    Put,
    SetSysctl,
)
from tests.network.agent.specs import BLUE, RED, port, spec, vpc
from tests.network.agent.test_desired import situation

WANTED = spec(
    [vpc(BLUE, peers=(RED,)), vpc(RED, peers=(BLUE,)), vpc(10003)],
    [port("10.1.0.3"), port("10.2.0.3", function="pf1", vni=RED), port("10.3.0.3", function="pf2", vni=10003)],
)
PORTS = {"pf0": "pf0hpf", "pf1": "pf1hpf", "pf2": "pf2hpf"}
BLUES, EVERYBODYS = ("pf0",), ("pf0", "pf1", "pf2")

CASES: list[tuple[Literal["netns", "vrf"], Operation, tuple[str, ...]]] = [
    ("netns", ChangeLink("vpc-10001", "pf0hpf", up=True), BLUES),
    ("netns", Put("vpc-10001", Route("10.1.0.5/32", "vx10001", "192.0.2.2")), BLUES),
    ("netns", Put("vpc-10001", Route("10.2.0.3/32", "p002711-002712", "192.0.2.1")), ("pf0", "pf1")),
    ("netns", AddNamespace("vpc-10001"), BLUES),
    ("netns", LoadChains("vpc-10001", frozenset(), frozenset()), BLUES),
    ("netns", SetSysctl("vpc-10001", Sysctl("ipv4/ip_forward", "1")), BLUES),
    ("netns", LoadChains(HOME, frozenset(), frozenset()), EVERYBODYS),
    ("netns", DeleteNamespace("vpc-10009"), ()),
    ("vrf", Put(HOME, Route("10.1.0.5/32", "vx10001", "192.0.2.2", table=BLUE)), BLUES),
    ("vrf", ChangeLink(HOME, "vpc10001", up=True), BLUES),
    ("vrf", Put(HOME, Address("pf0hpf", "10.1.0.2", 32)), BLUES),
    ("vrf", LoadChains(HOME, frozenset(), frozenset()), EVERYBODYS),
    ("vrf", SetSysctl(HOME, Sysctl("ipv6/conf/all/forwarding", "1")), EVERYBODYS),
]


@pytest.mark.parametrize(("backend", "operation", "functions"), CASES, ids=[each[1].words() for each in CASES])
def test_an_operation_is_the_fault_of_the_ports_that_need_it(
    backend: Literal["netns", "vrf"], operation: Operation, functions: tuple[str, ...]
) -> None:
    blame = Blame(WANTED, situation(backend, interfaces=PORTS))
    (refused,) = blame.problems([OperationRefused(operation, "Operation not permitted")], [])
    (differs,) = blame.problems([], [operation])
    assert (refused.reason, refused.functions) == ("KernelRefused", functions)
    assert (differs.reason, differs.functions) == ("KernelDiffers", functions)
    assert operation.words() in refused.message
    assert "Operation not permitted" in refused.message


def test_of_many_refusals_that_isolate_the_same_ports_one_is_told() -> None:
    blame = Blame(WANTED, situation(interfaces=PORTS))
    routes = [Put("vpc-10001", Route(f"10.1.0.{host}/32", "vx10001", "192.0.2.2")) for host in range(5, 99)]
    (problem,) = blame.problems([OperationRefused(each, "No buffer space available") for each in routes], routes)
    assert "10.1.0.5/32" in problem.message
