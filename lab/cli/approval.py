"""What an administrator decides once for each model of servers: that its firmware is approved.

The lab made the TPMs and the firmware itself, and registered the keys; so it approves what the first machine shows. A
key that is not the registered one is never approved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from provisioner.api import Server
from provisioner.cli.kubectl.attestation_command import carry_out, decide_approval
from provisioner.cluster.client import Cluster


class Approver:
    """Approves each FirmwareProfile once, and says by which command a person does."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._cluster, self._say = cluster, say
        self._approved: set[str] = set()

    def look(self, servers: Iterable[Server]) -> None:
        """Raises: Retryable while the API server is away."""
        for server in servers:
            profile = waiting_profile(server)
            if profile is None or profile in self._approved:
                continue
            carry_out(self._cluster, server, decide_approval(server, None, firmware=profile))
            self._approved.add(profile)
            self._say(f"$ kubectl provision attestation approve {server.name} --firmware {profile}")


def waiting_profile(server: Server) -> str | None:
    """The FirmwareProfile that was learned of the machine with the server's registered key, and is not approved."""
    attested = server.status.attestation
    pending = attested.pending if attested is not None else None
    if pending is None or pending.endorsement_key_sha256 != server.spec.endorsement_key_sha256:
        return None
    return pending.firmware_profile
