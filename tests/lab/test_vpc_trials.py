"""How the demo of tenant networks judges what its packets do, and what it says of it."""

from __future__ import annotations

import pytest

from lab.vpc_demo import site
from lab.vpc_demo.network import require_programs
from lab.vpc_demo.packets import is_echo_request
from lab.vpc_demo.residue import Shown, differing, residue
from lab.vpc_demo.stage import exit_status, line, summary
from lab.vpc_demo.trial import ANSWER, NOTHING, Result, Trial, carry_out
from provisioner.api import VPC, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NeedsHuman

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
    assert (exit_status([right]), exit_status([right, wrong]), exit_status([])) == (0, 1, 1)
    assert summary([right]) == "1 of 1 are as they must be"
    assert summary([right, wrong]).splitlines() == ["1 of 2 are as they must be", line(wrong)]


def test_the_objects_are_such_as_the_api_knows() -> None:
    kinds = {each.KIND.kind: each for each in (NetworkPool, Server, VPC, VPCAttachment, SecurityGroup)}
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
