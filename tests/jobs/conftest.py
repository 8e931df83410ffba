"""What the tests of jobs share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.tools import Tools
from provisioner.cluster.client import Cluster
from tests.jobs.kubernetes_site import Site
from tests.jobs.slurm_site import PACKAGES, SlurmSite
from tests.tools import lab_tools


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    made = Site(cluster, unique)
    yield made
    made.clean()


@pytest.fixture(scope="session")
def slurm_tools() -> Tools:
    """Slurm's programs."""
    return lab_tools(PACKAGES)


@pytest.fixture(scope="session")
def slurm_cluster(slurm_tools: Tools) -> Iterator[SlurmSite]:
    # Not in pytest's own folder: a socket's path is short, and the chroot sees /tmp.
    with tempfile.TemporaryDirectory(prefix="provisioner-slurm-") as folder:
        made = SlurmSite(slurm_tools, Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def slurm(slurm_cluster: SlurmSite) -> Iterator[SlurmSite]:
    """The cluster, all of it idle."""
    yield slurm_cluster
    slurm_cluster.clear()
