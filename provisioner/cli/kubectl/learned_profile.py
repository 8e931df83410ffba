"""The FirmwareProfile that was learned of a server's machine, as it is read to be approved."""

from __future__ import annotations

from provisioner.api import FirmwareProfile
from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.cluster.client import Cluster
from provisioner.join.admission.tpm.firmware import find_false_name, to_learn_again


def read_profile(cluster: Cluster, name: str, server: str) -> FirmwareProfile:
    """The profile to approve. server: whose machine waits for it.

    Raises: NotFound if it was deleted, Refused if its name is not that of its content.
    """
    try:
        profile = cluster.read(FirmwareProfile, name)
    except NotFound:
        raise NotFound(
            f"FirmwareProfile {name} was deleted since the machine at Server {server} showed it; nothing was approved",
            hint="the boot host writes it again when the machine next asks to join: see kubectl provision why "
            f"{server}; if it does not ask: kubectl provision power-cycle {server}; who deleted it is in the audit log "
            "of the API server",
        ) from None
    false_name = find_false_name(profile)
    if false_name is not None:
        raise Refused(f"{false_name}; nothing was approved", hint=to_learn_again(name))
    return profile
