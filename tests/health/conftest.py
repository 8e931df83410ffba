"""What the tests of this stage share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.cluster.client import Cluster


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("health")
