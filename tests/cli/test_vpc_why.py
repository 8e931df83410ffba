"""`kubectl provision vpc why` and `status`: the same objects give the same words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import pytest

from provisioner.api import VPC
from provisioner.api.machinery.codec import decode
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.printing import WIDTH
from provisioner.cli.vpc.attachment_screen import render_attachment
from provisioner.cli.vpc.reasons import present_trouble
from provisioner.cli.vpc.references import AttachmentReference, PortReference, read_port, read_reference
from provisioner.cli.vpc.standing import standing_of
from provisioner.cli.vpc.status_command import render_vpc, render_vpcs
from provisioner.cli.vpc.traffic import ForeignNamespace, Traffic
from provisioner.cli.vpc.traffic_screen import render_foreign, render_traffic
from provisioner.cli.vpc.why_command import read_packets, report, traffic_report
from provisioner.network.control.compile.passage import Packets, Side, judge_passage
from provisioner.network.control.compile.peers import key_of
from tests.cli.vpc_situations import (
    CARD,
    SITUATIONS,
    a_subject,
    a_vpc,
    an_attachment,
    as_a_tenant,
    blamed,
    of_another_tenant,
    own_claims,
    ready,
)
from tests.golden_files import assert_golden
from tests.network.control import objects
from tests.network.control.test_passage import WEB, a_group, a_side
from tests.network.control.test_passage import a_vpc as a_bare_vpc


@pytest.mark.parametrize("situation", SITUATIONS)
def test_golden_each_situation_is_told_on_one_screen(situation: str) -> None:
    told = render_attachment(SITUATIONS[situation]())
    assert_golden(f"cli/vpc-why-{situation}.txt", told)
    lines = told.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= WIDTH


def test_a_tenant_is_told_nothing_that_its_namespace_does_not_show() -> None:
    for situation in SITUATIONS.values():
        subject = as_a_tenant(situation())
        told = render_attachment(subject)
        for secret in ("green", "10.255.0.1", "KernelRefused", "r09-u01-dpu", "port."):
            assert secret not in told
        assert report(subject)["hidden"] == ["Servers", "DPUs", "DPUNetworks", "NetworkClaims"]


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        ("enforced", None),
        ("quarantined", None),
        ("without-tenant", "ServerNotAssigned"),
        ("of-another-tenant", "ServerNotAssigned"),
        ("without-a-dpu", "NoDPU"),
        ("pool-exhausted", "WaitsForVPC"),
        ("waits-for-another-dpu", "AddressNotReleased"),
        ("lacks-a-group", "SecurityGroupNotFound"),
        ("not-confirmed", None),
    ],
)
def test_the_controllers_rules_are_asked_anew(situation: str, reason: str | None) -> None:
    found = present_trouble(SITUATIONS[situation]())
    assert (found.reason if found else None) == reason


def test_what_changed_since_the_controllers_looked_is_told_beside_what_they_said() -> None:
    subject = a_subject(dpus=())
    told = render_attachment(subject)
    assert "is not enforced: WaitsForDPU" in told
    assert f"as things are now, NoDPU: Server '{subject.attachment.spec.server_ref}' has no DPU" in told


def test_a_port_that_another_has_is_named_with_its_holder() -> None:
    claims = own_claims()
    port = claims[f"port.{CARD}.pf0"]
    holder = replace(port.spec.holder, namespace="green", name="theirs", uid="uid-9")
    claims[port.name] = replace(port, spec=replace(port.spec, holder=holder))
    told = render_attachment(a_subject(claims=claims))
    assert f"port.{CARD}.pf0 is held by green/theirs" in told
    assert "PortTaken" in told


def test_programs_read_standing_and_reasons() -> None:
    found = report(blamed())
    assert (found["standing"], found["presentTrouble"]) == ("Waits", None)
    assert found["agentTrouble"]["reason"] == "KernelRefused"
    assert found["waitsFor"].startswith("WaitsForDPU: ")
    assert report(of_another_tenant())["presentTrouble"]["reason"] == "ServerNotAssigned"


@pytest.mark.parametrize(
    ("reason", "standing"),
    [
        (None, "Waits"),
        ("WaitsForClaims", "Waits"),
        ("PortNotReleased", "Waits"),
        ("NoDPU", "Stuck"),
        ("DPUDisagrees", "Stuck"),
    ],
)
def test_what_goes_on_by_itself_and_what_waits_for_a_person(reason: str | None, standing: str) -> None:
    assert standing_of(an_attachment(reason=reason)) == standing


def test_what_was_said_of_an_older_spec_counts_for_nothing() -> None:
    old = an_attachment(status="True", reason="Enforced", generation=3, observed=2)
    assert standing_of(old) == "Waits"
    assert "the controllers have not looked at it yet" in render_attachment(a_subject(old))


# What was named


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r01-u01", AttachmentReference(text="r01-u01", namespace=None, name="r01-u01", function=None)),
        (
            "r01-u01/pf0vf3",
            AttachmentReference(text="r01-u01/pf0vf3", namespace=None, name="r01-u01", function="pf0vf3"),
        ),
        ("vpca/a", AttachmentReference(text="vpca/a", namespace=None, name="a", function=None)),
        ("green/a", AttachmentReference(text="green/a", namespace="green", name="a", function=None)),
    ],
)
def test_an_attachment_is_named_in_several_ways(text: str, expected: AttachmentReference) -> None:
    assert read_reference(text) == expected


@pytest.mark.parametrize("text", ["", "/a", "a/", "a/b/c"])
def test_what_names_no_attachment_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="names no attachment"):
        read_reference(text)


def test_the_attachment_of_the_first_function_is_named_as_the_server() -> None:
    assert read_port("r01-u01") == PortReference(server="r01-u01", function="pf0")
    assert read_port("r01-u01").attachment_name == "r01-u01"
    assert read_port("r01-u01/pf0vf3").attachment_name == "r01-u01-pf0vf3"
    for text in ("/pf0", "r01-u01/", "r01-u01/eth0", "r01-u01/pf0/pf1"):
        with pytest.raises(BadInput, match="is no server"):
            read_port(text)


def test_a_port_alone_is_of_tcp_and_icmp_has_none() -> None:
    assert read_packets(None, 443) == Packets(protocol="TCP", port=443)
    assert read_packets("UDP", None) == Packets(protocol="UDP")
    assert read_packets(None, None) == Packets()
    with pytest.raises(click.UsageError):
        read_packets("ICMP", 7)


# What passes


def traffic(one: Side, other: Side, protocol: Any = "Any", port: int | None = None, **more: Any) -> Traffic:
    asked, known = Packets(protocol=protocol, port=port), {key_of(each.vpc): each.vpc for each in (one, other)}
    passage = judge_passage(one, other, asked, known.get)
    return Traffic(sender=one, receiver=other, asked=asked, passage=passage, **more)


def enforced_side(name: str, address: str, *groups: Any, **more: Any) -> Side:
    side = a_side(name, address, *groups, **more)
    condition = decode(VPC, {**objects.vpc("x"), "status": {"conditions": [ready("True", "Enforced", "it is")]}})
    status = replace(side.attachment.status, conditions=condition.status.conditions)
    return replace(side, attachment=replace(side.attachment, status=status))


PEERS = {
    "blue/main": a_bare_vpc(peers=("blue/other",)),
    "blue/other": a_bare_vpc("other", cidrs=["10.2.0.0/24"], peers=("blue/main",)),
}
SSH_DENIED = objects.rule(action="Deny", protocol="TCP", ports=["22"], priority=10)
STATELESS = a_group("asks", objects.rule("Egress", protocol="TCP"), objects.rule(protocol="ICMP"), stateful=False)
TRAFFIC: dict[str, Traffic] = {
    "all": traffic(enforced_side("a", "10.1.0.3"), enforced_side("b", "10.1.0.5")),
    "some": traffic(
        enforced_side("a", "10.1.0.3 fd00:1::3"),
        enforced_side("b", "10.1.0.5 fd00:1::5", a_group("web", objects.rule(**WEB), SSH_DENIED)),
    ),
    "port-allowed": traffic(
        enforced_side("a", "10.1.0.3"), enforced_side("b", "10.1.0.5", a_group("web", objects.rule(**WEB))), "TCP", 443
    ),
    "port-denied": traffic(
        enforced_side("a", "10.1.0.3"), enforced_side("b", "10.1.0.5", a_group("web", SSH_DENIED)), "TCP", 22
    ),
    "answers-dropped": traffic(enforced_side("a", "10.1.0.3", STATELESS), enforced_side("b", "10.1.0.5"), "TCP", 443),
    "quarantined-and-not-peers": traffic(
        enforced_side("a", "10.1.0.3", quarantined=True),
        enforced_side("b", "10.2.0.5", vpc=a_bare_vpc("other", cidrs=["10.2.0.0/24"])),
    ),
    "peers-and-not-enforced": traffic(
        a_side("a", "10.1.0.3", vpc=PEERS["blue/main"]),
        enforced_side("b", "10.2.0.5", vpc=PEERS["blue/other"]),
        unread=("green/third",),
    ),
}


@pytest.mark.parametrize("question", TRAFFIC)
def test_golden_what_passes_is_told_on_one_screen(question: str) -> None:
    told = render_traffic(TRAFFIC[question])
    assert_golden(f"cli/vpc-traffic-{question}.txt", told)
    assert len(told.splitlines()) <= 24
    assert max(len(line) for line in told.splitlines()) <= WIDTH


def test_programs_read_what_passes() -> None:
    found = {name: traffic_report(each) for name, each in TRAFFIC.items()}
    assert {name: each["passes"] for name, each in found.items()} == {
        "all": "All",
        "some": "Some",
        "port-allowed": "All",
        "port-denied": "None",
        "answers-dropped": "All",
        "quarantined-and-not-peers": "None",
        "peers-and-not-enforced": "All",
    }
    assert [each["reason"] for each in found["quarantined-and-not-peers"]["troubles"]] == ["NotPeers", "Quarantined"]
    assert found["answers-dropped"]["ways"][0]["answersArrive"] == "Drop"


@pytest.mark.parametrize(
    ("peers", "spec", "words"),
    [
        ((), {}, "nothing passes, as VPC blue/main names no VPC of namespace green"),
        (("green/main",), {}, "what passes is also told by namespace green, which you may not read"),
        (("green/main",), {"quarantined": True}, "blue/a is quarantined"),
    ],
)
def test_of_a_namespace_that_may_not_be_read_what_ones_own_shows_is_told(
    peers: tuple[str, ...], spec: dict[str, Any], words: str
) -> None:
    sender = a_side("a", "10.1.0.3", vpc=a_bare_vpc(peers=peers), **spec)
    told = render_foreign(ForeignNamespace(sender=sender, namespace="green", text="green/b"))
    assert words in " ".join(told.split())


# A VPC


def test_golden_a_vpc_and_its_attachments() -> None:
    waits = an_attachment("r01-u02", reason="NoDPU", message="Server 'r01-u02' has no DPU", told={})
    good = an_attachment(status="True", reason="Enforced", message="it is")
    cut = an_attachment("r01-u03", function="pf0vf3", reason="Quarantined", quarantined=True,
                        told={"addresses": ["10.1.0.9", "fd00:1::9"], "gateways": [], "dpuRef": CARD,
                              "forwardingState": "Quarantined"})  # fmt: skip
    assert_golden("cli/vpc-status.txt", render_vpc(a_vpc(), [cut, waits, good]))
    assert_golden("cli/vpc-status-wide.txt", render_vpc(a_vpc(), [cut, waits, good], wide=True))


def test_a_vpc_without_attachments_says_how_to_make_one() -> None:
    assert "kubectl provision vpc attach main SERVER -n blue" in render_vpc(a_vpc(), [])


def test_a_vpc_that_no_controller_has_looked_at_says_so() -> None:
    fresh = decode(VPC, objects.vpc("blue"))
    assert "Unobserved" in render_vpcs([fresh])
    assert "without a VNI" in render_vpc(fresh, [])
