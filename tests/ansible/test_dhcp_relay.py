"""Role dhcp_relay: installed twice on a host, and what it installed relays; the lines of a switch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.boot.dhcp import DhcpConfig, DhcpServer, Observation
from tests.ansible.hosts import PACKAGES, host_in
from tests.ansible.runs import Installed
from tests.boot.dhcp.messages import SERVER, rack, server, subnet
from tests.boot.dhcp.relay import is_written, wait_until
from tests.boot.dhcp.wire import Namespace, connect, namespaces
from tests.golden_files import assert_golden
from tests.tools import installed, lab_tools

pytestmark = pytest.mark.long

MAC = "52:54:00:90:00:15"
RELAY = "10.90.0.1"
VARIABLES: dict[str, Any] = {
    "dhcp_relay_boot_hosts": [SERVER],
    "dhcp_relay_downstream": ["rack0"],
    "dhcp_relay_upstream": ["boot0"],
    "dhcp_relay_start": False,
}


@pytest.fixture
def cabled() -> Iterator[list[Namespace]]:
    """boot host — up0 ════ boot0 — router — rack0 ════ eth0 — server"""
    with namespaces(3) as made:
        boot, router, far = made
        connect(boot, "up0", router, "boot0")
        connect(router, "rack0", far, "eth0")
        far.ip("link", "set", "eth0", "address", MAC)
        for namespace, cidr, interface in (
            (boot, f"{SERVER}/24", "lo"),
            (boot, "10.200.0.1/24", "up0"),
            (router, "10.200.0.2/24", "boot0"),
            (router, f"{RELAY}/24", "rack0"),
        ):
            namespace.ip("address", "add", cidr, "dev", interface)
        boot.ip("route", "add", "10.90.0.0/24", "via", "10.200.0.2")
        router.ip("route", "add", "10.80.0.0/24", "via", "10.200.0.1")
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        yield made


def test_what_the_role_installs_relays_a_discover_and_the_second_run_changes_nothing(
    cabled: list[Namespace], collection: Installed, tmp_path: Path
) -> None:
    boot, router, far = cabled
    with host_in(router, lab_tools(PACKAGES), tmp_path, collection) as host:
        rehearsed = host.play("dhcp_relay", VARIABLES, "--check")
        assert "Write the unit" in rehearsed.changed, rehearsed.output
        first = host.play("dhcp_relay", VARIABLES)
        assert first.code == 0, first.output
        assert "Write the unit" in first.changed
        assert "/dev/null" in host.run("readlink", "/etc/systemd/system/isc-dhcp-relay.service")
        again = host.play("dhcp_relay", VARIABLES)
        assert (again.code, again.changed) == (0, []), again.output

        heard: list[Observation] = []
        responder = DhcpServer(DhcpConfig(server_address=SERVER), heard.append)
        with boot.entered():
            responder.start()
        try:
            racks = [rack("r02", subnet("far", "10.90.0.0/24", gateway=RELAY))]
            responder.replace(racks, [server("far", MAC, "10.90.0.21", rack_name="r02", subnet_name="far")])
            out = tmp_path / "told"
            script = tmp_path / "hook.sh"
            script.write_text(f'#!/bin/sh\n[ "$1" != bound ] || echo "$ip $opt82" >> {out}\n')
            script.chmod(0o755)
            udhcpc = ["udhcpc", "-f", "-i", "eth0", "-s", str(script), "-t", "20", "-T", "1"]
            with (
                host.started("provisioner-dhcp-relay.service", tmp_path / "relay.log"),
                far.started(installed("busybox"), *udhcpc),
            ):
                wait_until(lambda: is_written(out), "udhcpc was not answered through the relay")
                assert out.read_text().split()[0] == "10.90.0.21"
        finally:
            responder.stop()

        changed = host.play("dhcp_relay", VARIABLES | {"dhcp_relay_boot_hosts": [SERVER, "10.80.0.2"]})
        assert changed.changed == ["Write the unit"], changed.output


def test_golden_lines_of_a_switch(collection: Installed, tmp_path: Path) -> None:
    file = tmp_path / "switch.conf"
    variables = {
        "dhcp_relay_os": "eos",
        "dhcp_relay_boot_hosts": ["10.80.0.1", "10.80.0.2"],
        "dhcp_relay_downstream": ["Vlan80", "Vlan81"],
        "dhcp_relay_config_file": str(file),
    }
    role = {"name": "relay", "ansible.builtin.include_role": {"name": "provisioner.provisioner.dhcp_relay"}}
    ran = collection.tasks(tmp_path, [role, role | {"name": "again"}], **variables)
    assert ran.code == 0, ran.output
    assert ran.changed == ["Render the switch's lines"], "the second run changed something"
    assert_golden("ansible/eos.conf", file.read_text())
    wrong = collection.tasks(tmp_path, [role], **variables | {"dhcp_relay_boot_hosts": ["boot1; reload"]})
    assert "expected at least one IPv4 address" in wrong.failed[0].result["msg"]
