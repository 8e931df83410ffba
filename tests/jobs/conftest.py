"""What the tests of jobs share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.cluster.client import Cluster
from provisioner.lab.tools import Tools, content_key, obtain_tools
from tests.jobs.kubernetes_site import Site
from tests.jobs.slurm_site import PACKAGES, SlurmSite


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    made = Site(cluster, unique)
    yield made
    made.clean()


@pytest.fixture(scope="session")
def slurm_tools() -> Tools:
    """Slurm's programs. Absent: a visible skip; in CI (`CI=true`) they are made (1 to 2 minutes)."""
    cache = Path(os.environ.get("PROVISIONER_CACHE") or Path.home() / ".cache" / "provisioner")
    built = cache / f"tools-{content_key(PACKAGES)}"
    if built.is_dir() or os.environ.get("CI") == "true":
        return obtain_tools(cache, PACKAGES)
    pytest.skip(f"no Slurm: {built} is not there; a test run with CI=true makes it")


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
