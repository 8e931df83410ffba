"""What `kubectl provision attestation forget` takes back of a server, what comes of it, and the Event about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from provisioner.api import NodePool, Server
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cli.kubectl.connection import MANAGER
from provisioner.cli.kubectl.person_event import person_event
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of

REASON: Final = "AttestationForgotten"


@dataclass(frozen=True)
class Forgetting:
    """What is to be taken back of a server. record: its status.attestation, if it has one. key: the registered key that
    is to go from its spec, if any. next_boot: what happens then, a line each."""

    server: Server
    record: bool
    key: str | None
    next_boot: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        return self.record or self.key is not None


def decide_forgetting(server: Server, pool: NodePool | None, *, key: bool) -> Forgetting:
    """pool: of its next boot. key: whether the key that is registered in its spec goes, too."""
    registered = server.spec.endorsement_key_sha256
    return Forgetting(
        server=server,
        record=server.status.attestation is not None,
        key=registered if key else None,
        next_boot=tuple(_foretell(server, pool, None if key else registered)),
    )


def _foretell(server: Server, pool: NodePool | None, key: str | None) -> list[str]:
    is_optional = pool is not None and pool.spec.attestation == "Optional"
    of_pool = f"NodePool {pool.name}, attestation {pool.spec.attestation}" if pool is not None else "it has no NodePool"
    lines = []
    if key is not None:
        lines.append(f"only the machine with endorsement key {key} joins, which stays registered")
        unknown = "it joins and proves nothing" if is_optional else "it waits"
        lines.append(
            f"its firmware counts as new: where it is approved, the machine joins; else {unknown} until: "
            f"kubectl provision attestation approve {server.name} --firmware PROFILE ({of_pool})"
        )
    else:
        unknown = "any that has its address joins and proves nothing" if is_optional else "none joins"
        lines.append(
            f"no endorsement key is registered: {unknown} until the key that it shows is approved: kubectl provision "
            f"attestation approve {server.name} --key DIGEST ({of_pool})"
        )
        lines.append("where boot hosts know vendors' authorities, the first TPM with a certificate of one is taken")
    if server.spec.dpu is not None:
        lines.append("until it has proved itself again, no host joins by its word")
    lines.append(
        f"a kexec has no proof to continue: have its firmware boot it: kubectl provision power-cycle {server.name}"
    )
    return lines


def carry_out(cluster: Cluster, forgetting: Forgetting, *, dry_run: bool = False) -> None:
    """Write it; with `dry_run` the API server says whether it would. Raises: Forbidden; Conflict if the server changed
    since it was read."""
    name, version = forgetting.server.name, forgetting.server.metadata.resource_version
    if forgetting.record:
        patch = {"metadata": {"resourceVersion": version}, "status": {"attestation": None}}
        written = cluster.patch(of(Server), name, patch, subresource="status", manager=MANAGER, dry_run=dry_run)
        version = version if dry_run else written["metadata"]["resourceVersion"]
    if forgetting.key is not None:
        spec = {"metadata": {"resourceVersion": version}, "spec": {"endorsementKeySHA256": None}}
        cluster.patch(of(Server), name, spec, manager=MANAGER, dry_run=dry_run)


def forget_event(forgetting: Forgetting, user: str, reason: str | None, now: datetime, suffix: str) -> dict[str, Any]:
    """The Event of the Server that says who has it forgotten, and why. suffix: makes its name another one each time."""
    server = forgetting.server
    proof = ["what it had proved and shown of itself"] if forgetting.record else []
    key = [f"its registered endorsement key {forgetting.key}"] if forgetting.key is not None else []
    regarding = {
        "apiVersion": API_VERSION,
        "kind": "Server",
        "name": server.name,
        "uid": server.metadata.uid or "",
    }
    message = f"{user} took back {' and '.join(proof + key)}: {reason or 'no reason was given'}"
    return person_event(regarding, "forgotten", REASON, message, now, suffix)
