"""A Maintenance is filed under a name of its server's, whatever names people have given to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from provisioner.api.machinery.errors import Conflict
from provisioner.api.nodes.maintenance import Requestor
from provisioner.rules.filing import NUMBERS_TRIED, NoNameLeft, file_maintenance

ASKED = Requestor(name="user-alice", action="Reboot", requested_time="2026-05-04T10:00:00Z")


class FakeMaintenances:
    """By name, the server of each."""

    def __init__(self, servers: Mapping[str, str]) -> None:
        self.servers = dict(servers)
        self.managers: list[str | None] = []

    def create(self, type: object, body: dict[str, Any], *, manager: str | None = None) -> dict[str, Any]:  # noqa: A002
        name = body["metadata"]["name"]
        if name in self.servers:
            raise Conflict(f"{name} exists", after_seconds=0.0)
        self.servers[name] = body["spec"]["serverRef"]
        self.managers.append(manager)
        return body

    def find(self, type: object, name: str) -> dict[str, Any] | None:  # noqa: A002
        server = self.servers.get(name)
        return None if server is None else {"spec": {"serverRef": server}}


def test_it_has_the_next_number_its_asker_and_what_keeps_it_until_it_is_released() -> None:
    cluster = FakeMaintenances({})
    filed = file_maintenance(cluster, "r01-u01", ASKED, ["r01-u01-4"], manager="provisioner-rollout")
    assert filed["metadata"] == {"name": "r01-u01-5", "finalizers": ["provisioner.dev/release"]}
    assert filed["spec"]["serverRef"] == "r01-u01"
    assert [each["name"] for each in filed["spec"]["requestors"]] == ["user-alice"]
    assert cluster.managers == ["provisioner-rollout"]


def test_a_name_that_a_person_gave_to_another_servers_is_passed_over() -> None:
    cluster = FakeMaintenances({"r01-u01-1": "r01-u02", "r01-u01-2": "r01-u02"})
    assert file_maintenance(cluster, "r01-u01", ASKED, [])["metadata"]["name"] == "r01-u01-3"


def test_one_that_somebody_else_made_of_this_server_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="r01-u01-1 exists"):
        file_maintenance(FakeMaintenances({"r01-u01-1": "r01-u01"}), "r01-u01", ASKED, [])


def test_who_takes_all_names_is_told_of_and_not_followed_for_ever() -> None:
    cluster = FakeMaintenances({f"r01-u01-{number}": "r01-u02" for number in range(1, 2 * NUMBERS_TRIED)})
    with pytest.raises(NoNameLeft, match="belong to Maintenances of others; delete those"):
        file_maintenance(cluster, "r01-u01", ASKED, [])
