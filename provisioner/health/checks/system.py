"""What the machine runs against what it was ordered to run: image, clock, root, kubelet, runtime. Pure.

These are always looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.pool_settings import VerificationSettings
from provisioner.health.checks.finding import Finding, fine, not_yet, wrong
from provisioner.rules.nodes import NodeView

PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
KUBELET_SECONDS: Final = 300.0
"""The network add-on and its image may take so long on a node that was just booted."""

_MIB = 1024 * 1024


def check_system(
    node: NodeView,
    facts: NodeFacts,
    settings: VerificationSettings,
    *,
    image_ref: str | None,
    image_digest: str | None,
    clock_skew_seconds: float | None,
    has_ntp_servers: bool,
) -> Iterator[Finding]:
    """image_digest: that of the Image ordered, None if it is gone. clock_skew_seconds: None until it was measured.

    has_ntp_servers: whether the server's subnet names any; else only the difference of the clocks counts.
    """
    yield _image(facts, image_ref, image_digest)
    yield _clock(node, facts, settings.clock_skew_seconds, clock_skew_seconds, has_ntp_servers)
    yield _root(facts, settings.root_free_mib)
    yield _kubelet(node, facts)
    yield _runtime(node, facts)
    yield _pressure(node)


def _image(facts: NodeFacts, image_ref: str | None, image_digest: str | None) -> Finding:
    if image_digest is None:
        return wrong(
            "ImageDigest",
            "ImageUnknown",
            observed=f"the machine says it runs {facts.image_digest}; Image {image_ref}, which was ordered, is gone",
            expected="an Image to compare with",
            remedy=f"publish Image {image_ref} again, or reboot the server on the image that its pool names now",
        )
    if facts.image_digest == image_digest:
        return fine("ImageDigest", f"runs Image {image_ref} ({image_digest})")
    return wrong(
        "ImageDigest",
        "WrongImage",
        observed=f"the machine says it runs {facts.image_digest}",
        expected=f"{image_digest} of Image {image_ref}, which was ordered",
        remedy="reimage it; if it comes back so again, see what it boots from: kubectl describe server",
        patience_seconds=0.0,
    )


def _clock(node: NodeView, facts: NodeFacts, allowed: int, skew: float | None, has_ntp_servers: bool) -> Finding:
    remedy = "check the rack's ntpServers and the way to them (on the node: timedatectl timesync-status)"
    if facts.clock_synchronized is False and has_ntp_servers:
        return wrong(
            "Clock",
            "NotSynchronized",
            observed="the clock is not synchronized",
            expected="that it is, by the ntpServers of its rack's subnet",
            remedy=remedy,
        )
    if skew is None:
        message = f"waits until Lease {node.name} in kube-node-lease is seen to be renewed, to measure the node's clock"
        return not_yet("Clock", "NotMeasured", message)
    if abs(skew) > allowed:
        direction = "ahead of" if skew > 0 else "behind"
        return wrong(
            "Clock",
            "Skewed",
            observed=f"the node's clock is {abs(skew):.0f} s {direction} the controller's",
            expected=f"at most {allowed} s",
            remedy=f"{remedy}; if it is so on many nodes, check the clock where the controller runs",
        )
    alone = ", not synchronized: its rack's subnet names no ntpServers" if facts.clock_synchronized is False else ""
    return fine("Clock", f"within {allowed} s of the controller's{alone}")


def _root(facts: NodeFacts, wanted_mib: int) -> Finding:
    if facts.root_free_bytes is None:
        if wanted_mib == 0:
            return fine("Root", "free space is not looked at")
        return wrong(
            "Root",
            "Unknown",
            observed="the agent does not say how much of the root is free",
            expected=f"at least {wanted_mib} MiB",
            remedy="on the node: df /; journalctl -u provisioner-node",
        )
    free = facts.root_free_bytes // _MIB
    if free >= wanted_mib:
        return fine("Root", f"{free} MiB of the root are free")
    return wrong(
        "Root",
        "TooFull",
        observed=f"{free} MiB of the root are free",
        expected=f"at least {wanted_mib} MiB",
        remedy="see what fills it (on the node: du -xh / | sort -h), or give the pool's image a larger root",
    )


def _kubelet(node: NodeView, facts: NodeFacts) -> Finding:
    if node.ready:
        return fine("Kubelet", f"Node {node.name} is Ready")
    ready = node.condition("Ready")
    said = (ready.message or ready.reason or f"Ready is {ready.status}") if ready is not None else "it says nothing"
    active = {True: "", False: ", and its kubelet is not active", None: ""}[facts.kubelet_active]
    return wrong(
        "Kubelet",
        "NotReady",
        observed=f"Node {node.name} is not Ready: {said}{active}",
        expected="Ready",
        remedy=f"kubectl describe node {node.name}; on the node: journalctl -u kubelet",
        patience_seconds=KUBELET_SECONDS,
    )


def _runtime(node: NodeView, facts: NodeFacts) -> Finding:
    remedy = "on the node: systemctl status containerd; journalctl -u containerd"
    if facts.runtime_active is False:
        return wrong(
            "Runtime",
            "NotActive",
            observed="the container runtime is not active",
            expected="active",
            remedy=remedy,
        )
    if not node.runtime_version:
        return wrong(
            "Runtime",
            "NoVersion",
            observed=f"Node {node.name} reports no containerRuntimeVersion",
            expected="the runtime that the kubelet talks to",
            remedy=remedy,
        )
    return fine("Runtime", node.runtime_version)


def _pressure(node: NodeView) -> Finding:
    pressed = [
        f"{type_}: {found.message or found.reason or 'True'}"
        for type_ in PRESSURES
        if (found := node.condition(type_)) is not None and found.is_true
    ]
    if not pressed:
        return fine("Pressure", "neither memory, nor disk, nor process ids are short")
    return wrong(
        "Pressure",
        "UnderPressure",
        observed="; ".join(pressed),
        expected=f"none of {', '.join(PRESSURES)}",
        remedy=f"kubectl describe node {node.name}; on the node: df -h; free -m",
    )
