"""An agent that nobody told of the boot host leads its host to where the DPU itself booted and joined."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from provisioner.network.agent.boot.own_boot import NotKnown, services_of_own_boot
from provisioner.network.agent.boot.plane import BootServices
from provisioner.node.join_files import KUBELET_FOLDER

BOOT = {
    "server": "r01-u01-dpu",
    "mac": "52:54:00:00:00:01",
    "url": "http://10.80.0.1",
    "join": "https://10.80.0.1:8443",
    "imageDigest": "sha256:" + "0" * 64,
    "address": "10.80.0.21/24",
}


def machine(root: Path, api_server: str = "https://10.80.0.5:6443", **boot: str) -> str:
    """Files of a DPU that has booted and joined."""
    (root / "run/provisioner").mkdir(parents=True)
    (root / "run/provisioner/boot.json").write_text(json.dumps({**BOOT, **boot}))
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("0\n")
    kubelet = root / KUBELET_FOLDER.lstrip("/")
    (kubelet / "pki").mkdir(parents=True)
    (kubelet / "kubeconfig").write_text(f"clusters:\n- cluster:\n    server: {api_server}\n")
    (kubelet / "kubelet.env").write_text('KUBELET_ARGS="--hostname-override=r01-u01-dpu"\n')
    (kubelet / "pki/kubelet-client-current.pem").touch()
    return str(root)


def test_boot_host_and_api_server_are_those_of_the_dpu(tmp_path: Path) -> None:
    address = IPv4Address("10.80.0.1")
    assert services_of_own_boot(machine(tmp_path)) == BootServices(address, IPv4Address("10.80.0.5"), 6443, 8443)


def test_ports_other_than_the_usual_ones_are_taken_over(tmp_path: Path) -> None:
    found = services_of_own_boot(machine(tmp_path, "https://10.80.0.5", join="https://10.80.0.1:9443/"))
    assert (found.api_port, found.join_port) == (443, 9443)


@pytest.mark.parametrize(
    ("api_server", "boot", "why"),
    [
        ("https://10.80.0.5:6443", {"join": "https://boot.example:8443", "url": "http://boot.example"}, "boot.example"),
        ("https://10.80.0.5:6443", {"join": "https://10.80.0.2:8443"}, "not from one boot host"),
        ("https://10.80.0.5:6443", {"url": "http://10.80.0.1:8080"}, "not from one boot host"),
        ("https://10.80.0.5:6443", {"join": "http://10.80.0.1:8443"}, "not from one boot host"),
        ("https://10.80.0.5:6443", {"join": "https://127.0.0.1:8443", "url": "http://127.0.0.1"}, "127.0.0.1"),
        ("https://10.80.0.5:6443", {"url": "ftp://10.80.0.1"}, "does not begin with http"),
        ("https://api.example:6443", {}, "api.example"),
        ("https://[fd00::5]:6443", {}, "fd00::5"),
        ("https://10.80.0.1:8443", {}, "a port of its own"),
        ("https://10.80.0.5:80", {}, "a port of its own"),
    ],
)
def test_what_its_host_could_not_use_is_told_with_what_to_give_instead(
    api_server: str, boot: dict[str, str], why: str, tmp_path: Path
) -> None:
    root = machine(tmp_path, api_server, **boot)
    with pytest.raises(NotKnown, match=why):
        services_of_own_boot(root)


def test_a_machine_that_was_not_booted_over_the_network_knows_of_none(tmp_path: Path) -> None:
    with pytest.raises(NotKnown, match="give --boot-host and --api-server"):
        services_of_own_boot(str(tmp_path))


def test_one_that_has_not_joined_knows_of_none(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (tmp_path / KUBELET_FOLDER.lstrip("/") / "kubeconfig").unlink()
    with pytest.raises(NotKnown, match="has not joined"):
        services_of_own_boot(root)
