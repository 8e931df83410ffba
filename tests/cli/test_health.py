"""`kubectl provision health`: the faults of servers, what they mean, and what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.servers.faults import FaultRecord
from provisioner.cli.fleet.health_command import render_health, shown_faults
from tests.cli.rack_of_nodes import RackOfNodes
from tests.cli.situations import FAULTS, NOON, fault, server
from tests.golden_files import assert_golden
from tests.people import bind


def broken(rack: RackOfNodes, *faults: FaultRecord) -> str:
    name = rack.add()
    rack.admin.apply_status(Server, name, {"faults": to_json(faults or FAULTS)}, manager="provisioner-faults")
    return name


def test_golden_the_faults_of_two_servers_with_their_remedies() -> None:
    one, other = server(faults=FAULTS), server(faults=(fault("Flux", component="Disk", device=""),))
    other = replace(other, metadata=replace(other.metadata, name="r01-u08"))
    shown = [(each, shown_faults(each, info=True)) for each in (one, other)]
    assert_golden("cli/health.txt", render_health(shown, NOON))


def test_the_worst_is_first_and_what_needs_no_action_is_shown_on_request() -> None:
    assert [each.code for each in shown_faults(server(faults=FAULTS), info=False)] == ["XID79", "ModuleError"]
    assert [each.code for each in shown_faults(server(faults=FAULTS), info=True)] == ["XID79", "ModuleError", "XID31"]


def test_a_server_without_faults_has_none_and_that_is_no_error(rack: RackOfNodes) -> None:
    name = rack.add()
    assert rack.done("health", name) == "no faults\n"
    assert rack.done("health", "--pool", rack.prefix) == "no faults\n"
    assert rack.done("health", name, "-o", "name") == ""


def test_the_faults_of_a_pool_and_of_one_server_are_shown(rack: RackOfNodes) -> None:
    well, name = rack.add(), broken(rack)
    header, *rows = rack.done("health", "--pool", rack.prefix).partition("\n\n")[0].splitlines()
    assert header.split()[:5] == ["SERVER", "COMPONENT", "DEVICE", "CODE", "SEVERITY"]
    assert [row.split()[:4] for row in rows] == [
        [name, "GPU", "0000:1b:00.0", "XID79"],
        [name, "NIC", "0000:18:00.0", "ModuleError"],
    ]
    assert "remedy: power-cycle the server" in rack.done("health", name)
    assert "XID31" in rack.done("health", name, "--all")
    assert "XID79" in rack.done("health")
    assert rack.done("health", "-l", f"provisioner.dev/pool={rack.prefix}", "-o", "name") == f"server/{name}\n"
    assert well not in rack.done("health", well, name)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_program_gets_the_records_with_meaning_and_remedy(rack: RackOfNodes, form: str) -> None:
    name = broken(rack)
    said = rack.done("health", name, "-o", form)
    assert "the GPU fell off the bus" in said
    if form == "json":
        report = json.loads(said)
        assert (report["kind"], report["metadata"]["name"]) == ("FaultReport", name)
        first = report["faults"][0]
        assert {key: first[key] for key in ("code", "reported", "count")} == {
            "code": "XID79",
            "reported": False,
            "count": 1,
        }


def test_a_server_that_is_not_there_is_an_error_in_words(rack: RackOfNodes) -> None:
    result = rack.run("health", f"{rack.prefix}-none")
    assert result.exit_code == 1
    assert "there is no Node and no Server" in result.stderr


def test_what_a_node_wrote_reaches_no_terminal_as_an_order(rack: RackOfNodes) -> None:
    name = broken(rack, fault("XID79", evidence="a\u202eb\u0085c"))
    said = rack.done("health", name)
    assert all(each.isprintable() or each == "\n" for each in said)
    assert "a\ufffdb" in said


def test_why_names_critical_faults_alone(rack: RackOfNodes) -> None:
    name = broken(rack)
    said = " ".join(rack.done("why", name).split())
    assert "GPU 0000:1b:00.0 XID79, since" in said
    assert "no longer reported: the GPU fell off the bus; remedy: power-cycle the server" in said
    assert "ModuleError" not in said
    assert f"2 other faults on record: kubectl provision health {name} --all" in said


def test_a_viewer_sees_faults_and_who_has_no_rights_is_told_so(rack: RackOfNodes) -> None:
    name = broken(rack)
    bind(rack.admin, "provisioner-viewer", "vera-of-health")
    assert "XID79" in rack.done("health", name, "--as", "vera-of-health")
    assert "XID79" in rack.done("health", "--pool", rack.prefix, "--as", "vera-of-health")
    result = rack.run("health", name, "--as", "nobody-in-particular")
    assert (result.exit_code, "nobody-in-particular" in result.stderr) == (3, True)
