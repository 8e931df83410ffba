"""What the demo shows, in its order. Every act begins with the commands that a person would give."""

from __future__ import annotations

from typing import Final

from lab.demo.daemon import API_SERVER_PORT
from lab.demo.state import ADDRESS
from lab.vpc_demo import site
from lab.vpc_demo.network import dpu_of
from lab.vpc_demo.packets import hardware_address
from lab.vpc_demo.residue import Shown, differing, residue, show
from lab.vpc_demo.stage import Stage
from lab.vpc_demo.trial import ANSWER, NOTHING
from provisioner.api import NetworkClaim
from provisioner.cluster.resources import of

FIRST, SECOND, _ = site.CARDS
NO_MORE: Final = "nothing"


def play(stage: Stage) -> None:
    """All acts. Raises: NeedsHuman if one cannot be played; what comes of its trials is in `stage.results`."""
    before = show(dpu_of(stage.state, SECOND))
    attach(stage)
    reach_their_own(stage)
    reach_nothing_else(stage)
    lie(stage)
    peer(stage)
    close_a_port(stage)
    quarantine(stage)
    detach(stage, before)


def attach(stage: Stage) -> None:
    stage.act("Two tenants, each with a VPC main of the same prefixes; their hosts get the same addresses, IP and MAC")
    for tenant in site.PEOPLE:
        stage.tenant(tenant, "apply", "-f", str(stage.document(f"{tenant}.yaml", site.wishes(tenant))))
        stage.wait_until_attached(tenant)
    stage.command("get", "vpc,vpca", "-A")
    stage.command("get", "dpunet")


def reach_their_own(stage: Stage) -> None:
    stage.act("Each tenant's hosts reach one another; who answers on port 80 says its name")
    for tenant in site.PEOPLE:
        stage.pings(f"{tenant} r01-u01", "10.1.0.5", ANSWER)
        stage.pings(f"{tenant} r01-u01", "fd00:1::5", ANSWER)
        stage.connects(f"{tenant} r01-u01", "10.1.0.5", 80, f"{tenant} r01-u02")


def reach_nothing_else(stage: Stage) -> None:
    stage.act("What the first DPU reaches, and a host behind it does not: other DPUs, the underlay, the API server")
    for address in (SECOND.vtep, SECOND.management):
        stage.pings(FIRST.name, address, ANSWER)
    stage.connects(FIRST.name, ADDRESS, API_SERVER_PORT, ANSWER)
    for address in (FIRST.vtep, SECOND.vtep, FIRST.management, SECOND.management):
        stage.pings("blue r01-u01", address, NOTHING)
    stage.connects("blue r01-u01", ADDRESS, API_SERVER_PORT, NOTHING)
    stage.act("Nor does it reach the other tenant's second VPC, 10.2.0.0/24")
    stage.pings("blue r01-u01", "10.2.0.3", NOTHING)
    stage.connects("blue r01-u01", "10.2.0.3", 80, NOTHING)


def lie(stage: Stage) -> None:
    stage.act("A host that takes what is its neighbour's is not heard at a third host; in its own name it is")
    liar, target, to = "blue r01-u01", "blue r01-u03", "10.1.0.7"
    neighbours_mac = hardware_address(stage.host("blue r01-u02"))
    stage.lies(liar, "ping 10.1.0.7 as itself", target, to)
    stage.lies(liar, "ping 10.1.0.7 from 10.1.0.5", target, to, address="10.1.0.5")
    stage.lies(liar, f"ping 10.1.0.7 from {neighbours_mac}", target, to, mac=neighbours_mac)
    stage.lies(liar, "ping 10.1.0.7 as itself", target, to)


def peer(stage: Stage) -> None:
    stage.act("Peers exchange packets once both name each other, and nobody else's")
    stage.change("blue", "vpc", "main", peers=[{"namespace": "green", "name": "storage"}])
    stage.wait_for_reason("blue", "main", "PeerNotMutual")
    stage.connects("blue r01-u01", "10.2.0.3", 80, NOTHING)
    stage.change("green", "vpc", "storage", peers=[{"namespace": "blue", "name": "main"}])
    stage.connects("blue r01-u01", "10.2.0.3", 80, "green r01-u03", soon=True)
    stage.connects("green r01-u03", "10.1.0.5", 80, "blue r01-u02", soon=True)
    stage.connects("green r01-u01", "10.2.0.3", 80, NOTHING)
    stage.connects("green r01-u01", "10.1.0.5", 80, "green r01-u02")


def close_a_port(stage: Stage) -> None:
    stage.act("A security group lets in what it names, and nothing else")
    stage.connects("blue r01-u01", "10.1.0.5", 22, "blue r01-u02")
    stage.tenant("blue", "apply", "-f", str(stage.document("group.yaml", [site.web_group()])))
    stage.change("blue", "vpca", "r01-u02", securityGroupRefs=["web"])
    stage.connects("blue r01-u01", "10.1.0.5", 22, NOTHING, soon=True)
    stage.pings("blue r01-u01", "10.1.0.5", NOTHING)
    stage.connects("blue r01-u01", "10.1.0.5", 80, "blue r01-u02")
    stage.connects("green r01-u01", "10.1.0.5", 22, "green r01-u02")


def quarantine(stage: Stage) -> None:
    stage.act("Quarantine cuts one host off, and gives it back as it was")
    stage.pings("blue r01-u01", "10.1.0.7", ANSWER)
    stage.change("blue", "vpca", "r01-u03", quarantined=True)
    stage.pings("blue r01-u01", "10.1.0.7", NOTHING, soon=True)
    stage.pings("blue r01-u03", "10.1.0.3", NOTHING)
    stage.connects("blue r01-u01", "10.1.0.5", 80, "blue r01-u02")
    stage.change("blue", "vpca", "r01-u03", quarantined=False)
    stage.pings("blue r01-u01", "10.1.0.7", ANSWER, soon=True)


def detach(stage: Stage, before: Shown) -> None:
    """`before`: what `show` of the second DPU printed when nothing had been attached yet."""
    second, same = dpu_of(stage.state, SECOND), "what it did before"
    stage.act("Detached: blue's second host is gone, and green's with the same address is not in its place")
    stage.tenant("blue", "delete", "vpca", "r01-u02")
    stage.connects("blue r01-u01", "10.1.0.5", 80, NOTHING, soon=True)
    stage.connects("green r01-u01", "10.1.0.5", 80, "green r01-u02")
    stage.act("With its last attachment a DPU forgets all tenants; deleted, it has nothing of ours at all")
    stage.tenant("green", "delete", "vpca", "r01-u02")
    stage.checks(
        SECOND.name,
        "its agent's show prints",
        same,
        lambda: ", ".join(differing(before, show(second))) or same,
        soon=True,
    )
    stage.checks("kubectl", "get netclaim of its hosts", NO_MORE, lambda: _claims(stage), soon=True)
    stage.command("delete", "server", SECOND.name)
    stage.checks(
        SECOND.name, "its agent's show prints", NO_MORE, lambda: ", ".join(residue(show(second))) or NO_MORE, soon=True
    )


def _claims(stage: Stage) -> str:
    """Names of the claims whose holders were attachments of the second server."""
    bodies = stage.cluster.list(of(NetworkClaim)).items
    held = [str(each["metadata"]["name"]) for each in bodies if each["spec"]["holder"]["name"] == SECOND.server]
    return ", ".join(sorted(held)) or NO_MORE
