"""Which machine is meant by the name of its Server."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from provisioner.cli.boot.reading import find_claimants
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cluster.client import Cluster
from tests.boot.dhcp.messages import server


@pytest.mark.parametrize(
    ("stored", "remedy"),
    [
        ("52-54-00-00-10-06", "write it as 52:54:00:00:10:06: kubectl edit server r01-u01"),
        ("none", "give it that of the interface that boots: kubectl edit server r01-u01"),
    ],
)
def test_a_stored_mac_address_that_is_none_is_named(stored: str, remedy: str) -> None:
    cluster: Any = Mock(spec=Cluster, read=Mock(return_value=server(mac=stored)))
    with pytest.raises(BadInput, match=r"spec\.bootMACAddress '.*' of Server r01-u01") as caught:
        find_claimants(cluster, "r01-u01")
    assert (stored in str(caught.value), caught.value.hint) == (True, remedy)
