"""The units as systemd runs them, with all that they give up: what is restricted too far would not work here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cli.main import COMMANDS
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES
from tests.packaging.booted_host import BootedHost, booted_host
from tests.packaging.container import Container
from tests.packaging.forward import forwarded
from tests.packaging.made import BOOT, CHECKOUT
from tests.people import kubeconfig_of, of_account
from tests.tools import installed

pytestmark = pytest.mark.timeout(900)

UNITS: Final = CHECKOUT / "packaging/systemd"
ADDRESS, OF_THE_CACHE = "10.80.0.1", "10.80.0.2"
PATIENCE_SECONDS: Final = 240


@pytest.fixture(scope="module")
def host(
    container: Callable[[str], Container], control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedHost]:
    """With the files that an administrator writes; no unit is started."""
    folder = tmp_path_factory.mktemp("host")
    installed("curl")
    with booted_host(container(BOOT).root, UNITS, folder) as found:
        for command in (
            "ip link set lo up",
            "ip link add boot0 type bridge",
            f"ip addr add {ADDRESS}/24 dev boot0",
            f"ip addr add {OF_THE_CACHE}/24 dev boot0",
            "ip link set boot0 up",
        ):
            found.run(*command.split())
        for name, account in (("boot", "boot"), ("controller", "controller"), ("web", "web"), ("reflector", "network")):
            kubeconfig = kubeconfig_of(control_plane, folder, of_account(account)).read_text()
            found.write(f"/etc/provisioner/{name}.kubeconfig", kubeconfig)
        found.write("/etc/provisioner/infiniband.kubeconfig", kubeconfig)
        certificate = control_plane.directory / "pki"
        found.write("/etc/provisioner/join.crt", (certificate / "apiserver.crt").read_text())
        found.write("/etc/provisioner/join.key", (certificate / "apiserver.key").read_text())
        port = int(control_plane.server_url.rpartition(":")[2])
        with forwarded(port, found.in_its_network, folder):
            yield found


def start(host: BootedHost, name: str, **variables: str) -> None:
    prefix = f"PROVISIONER_{name.upper()}_"
    lines = "".join(f"{prefix}{variable}={value}\n" for variable, value in variables.items())
    host.write(f"/etc/provisioner/{name}.env", lines)
    host.run("systemctl", "start", f"provisioner-{name}")


def until(host: BootedHost, unit: str, what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"still not: {what}\n{host.log(unit)[-5000:]}"
        time.sleep(0.5)


def stop(host: BootedHost, unit: str) -> None:
    """In time, and well."""
    host.run("systemctl", "stop", unit)
    assert host.run("systemctl", "show", "--property=Result", "--value", unit).strip() == "success", host.log(unit)
    assert host.run("systemctl", "is-active", unit, check=False).strip() == "inactive"


def fetched(host: BootedHost, url: str) -> str | None:
    asked = host.ask("curl", "--silent", "--fail", "--insecure", "--max-time", "20", url)
    return asked.stdout if asked.returncode == 0 else None


def assert_restricted(status: dict[str, str], capabilities: int) -> None:
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert int(status["CapBnd"], 16) == capabilities


CHOWN, KILL, SETGID, SETUID, BIND, RAW = (1 << number for number in (0, 5, 6, 7, 10, 13))


def test_a_boot_host_serves_scripts_first_stage_and_dhcp_with_six_capabilities(host: BootedHost) -> None:
    start(host, "boot", ADDRESS=ADDRESS, INTERFACE="boot0", API_SERVER=f"https://{ADDRESS}:6443")
    unit = "provisioner-boot"
    until(host, unit, "ready", lambda: fetched(host, f"http://{ADDRESS}/readyz") is not None)
    assert_restricted(host.status(unit), CHOWN | KILL | SETGID | SETUID | BIND | RAW)
    assert "#!ipxe" in str(fetched(host, f"http://{ADDRESS}/boot.ipxe"))
    until(host, unit, "TFTP", lambda: "#!ipxe" in str(fetched(host, f"tftp://{ADDRESS}/autoexec.ipxe")))
    until(host, unit, "DHCP on its interface", lambda: "%boot0:67" in host.ask("ss", "-lun").stdout)
    assert host.ask("curl", "-sk", "-o/dev/null", "-w%{http_code}", f"https://{ADDRESS}:8443/v1/join").stdout != "000"

    def users(program: str) -> set[str]:
        lines = host.run("ps", "-eo", "uid=,comm=").split("\n")
        return {line.split()[0] for line in lines if line.split()[1:] == [program]}

    assert users("nginx") == {"0", "33"}
    assert users("dnsmasq") == {"33"}
    # One that dies is started again, also by what has no more than this.
    host.run("/bin/sh", "-c", "kill -9 $(ps -o pid= -C dnsmasq)")
    until(host, unit, "TFTP again", lambda: "#!ipxe" in str(fetched(host, f"tftp://{ADDRESS}/autoexec.ipxe")))
    assert "Operation not permitted" not in host.log(unit)
    stop(host, unit)
    assert users("nginx") | users("dnsmasq") == set()


def test_the_controller_leads_as_a_user_that_nobody_made(host: BootedHost, cluster: Cluster) -> None:
    start(host, "controller", BOOT_URL=f"http://{ADDRESS}", IDENTITY="by-systemd")

    def holder() -> str:
        leases = cluster.list(LEASES, namespace="provisioner-system").items
        found = [each for each in leases if each["metadata"]["name"] == "provisioner-controller"]
        return str(found[0]["spec"].get("holderIdentity")) if found else ""

    until(host, "provisioner-controller", "leader", lambda: holder() == "by-systemd")
    status = host.status("provisioner-controller")
    assert_restricted(status, 0)
    assert int(status["Uid"].split()[0]) > 60_000
    assert "Operation not permitted" not in host.log("provisioner-controller")
    stop(host, "provisioner-controller")
    assert holder() == "", "what is stopped hands its Lease back"


def test_a_cache_serves_on_port_80_with_one_capability(host: BootedHost) -> None:
    start(host, "cache", ADDRESS=OF_THE_CACHE, BOOT_HOST=f"http://{ADDRESS}")
    until(host, "provisioner-cache", "healthy", lambda: fetched(host, f"http://{OF_THE_CACHE}/healthz") is not None)
    status = host.status("provisioner-cache")
    assert_restricted(status, BIND)
    assert int(status["Uid"].split()[0]) > 60_000
    stop(host, "provisioner-cache")


@pytest.mark.parametrize("name", [name for name in ("infiniband", "reflector", "web") if name in COMMANDS])
def test_the_others_start_and_stay(host: BootedHost, name: str) -> None:
    """There is neither OpenSM nor bgpd: what these do with them is tested elsewhere, without systemd."""
    unit = f"provisioner-{name}"
    start(host, name, **({"ADDRESS": "10.100.0.2"} if name == "reflector" else {}))
    until(host, unit, "it says something", lambda: "{" in host.log(unit) or name == "infiniband")
    assert_restricted(host.status(unit), 0)
    assert host.run("systemctl", "is-active", unit).strip() == "active", host.log(unit)
    assert "Operation not permitted" not in host.log(unit)
    stop(host, unit)
