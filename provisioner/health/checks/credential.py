"""Whether one machine alone asked for the credential by which the Node joined. Pure."""

from __future__ import annotations

from provisioner.api import Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.servers.attestation import CREDENTIAL_CONTESTED
from provisioner.health.checks.finding import Finding, fine, wrong


def check_credential(server: Server) -> Finding:
    """It fails where two machines asked for it and neither proved anything: one of them is not this server.

    Nothing that comes later changes that. A Node that was let in before the second one asked stays in: who takes an
    address must not be able to end what runs there.
    """
    contested = find_condition(server.status.conditions, CREDENTIAL_CONTESTED)
    if contested is None or contested.status != "True":
        return fine("Credential", "no other machine asked for the credential of this boot")
    return wrong(
        "Credential",
        "Contested",
        observed="two machines asked for the credential of this boot, by different keys, and proved nothing",
        expected="one",
        remedy=f"find out who has the server's address ({server.status.address}), then have the server booted again",
        patience_seconds=0.0,
    )
