"""What the tests of jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from provisioner.cluster.client import Cluster
from tests.jobs.kubernetes_site import Site


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    made = Site(cluster, unique)
    yield made
    made.clean()
