"""A real Slurm whose nodes are the servers of the virtual rack, by name.

slurmctld, slurmrestd and a slurmd for each server, of Debian, run in the rack's network namespace beside the servers,
not in them: the image has no slurmd. What they run is not lost when a server reboots, which a test has to see for
itself: Slurm says whether it was drained before, and when the job ended.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.network import LabNetwork
from lab.tools import Tools
from tests.jobs.slurm_site import PACKAGES, PREFIX, SlurmSite
from tests.journey.virtual_rack import VirtualRack
from tests.tools import lab_tools

SECRET = "slurm-journey"


@dataclass(frozen=True)
class _Within(Tools):
    """Programs of a chroot, in a network namespace."""

    network: LabNetwork

    def command(self, argv, binds=()):  # type: ignore[no-untyped-def]
        return self.network.command(super().command(argv, binds))


@contextmanager
def slurm_beside(rack: VirtualRack) -> Iterator[SlurmSite]:
    """The cluster, and a Secret with which the rack's controller may ask it."""
    tools = _Within(lab_tools(PACKAGES).root, LabNetwork(rack.state.name))
    with tempfile.TemporaryDirectory(prefix="provisioner-slurm-") as folder:
        site = SlurmSite(tools, Path(folder))
        try:
            site.start()
            assert site.login is not None
            login = {"username": site.login.username, "token": site.login.token}
            data = {key: base64.b64encode(value.encode()).decode() for key, value in login.items()}
            metadata = {"name": SECRET, "namespace": "provisioner-slurm"}
            rack.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
            yield site
        finally:
            site.stop()


def settings_of(site: SlurmSite) -> dict[str, str]:
    """spec.jobs.slurm of a NodePool."""
    return {"url": site.url, "credentialsName": SECRET, "nodeNamePrefix": PREFIX}
