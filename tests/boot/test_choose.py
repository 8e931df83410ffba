"""What a server boots, as a table: each row is a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.server import BootOrder, ServerStatus
from provisioner.boot.script.choose import Boot, Wait, choose_boot_target
from provisioner.boot.script.kernel_arguments import BootUrls
from tests.boot.objects import STORE, URLS, at, image, pool, rack, server

ADDRESSED = ServerStatus(address="10.80.0.21", subnet_name="boot")
ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="old-image")

WAITS: list[tuple[str, Server, NodePool | None, Image | None, Rack | None, str]] = [
    ("a machine nobody accepted", server(acceptance="Pending"), pool(), image(), rack(), "PendingAcceptance"),
    ("a rejected one", server(acceptance="Rejected"), pool(), image(), rack(), "Rejected"),
    ("one that shall be off", server(power_state="Off"), pool(), image(), rack(), "PoweredOff"),
    ("one whose rack is gone", server(), pool(), image(), None, "NoRack"),
    ("one without an address", server(status=ServerStatus()), pool(), image(), rack(), "NoAddress"),
    ("one in no pool", server(node_pool_ref=None), None, image(), rack(), "NoNodePool"),
    ("one whose pool is gone", server(), None, image(), rack(), "NodePoolMissing"),
    ("one that must prove itself", server(), pool(attestation="Required"), image(), rack(), "AttestationRequired"),
    ("one whose image is gone", server(), pool(), None, rack(), "ImageMissing"),
    ("an arm64 one with an x86 image", server(architecture="arm64"), pool(), image(), rack(), "ImageWrongArchitecture"),
    ("one whose image nobody looked for", server(), pool(), image(available=None), rack(), "ImageUnavailable"),
    ("one whose image lacks files", server(), pool(), image(available="False"), rack(), "ImageUnavailable"),
    (
        "one whose subnet the rack does not have",
        server(status=ServerStatus(address="10.80.0.21", subnet_name="other")),
        pool(),
        image(),
        rack(),
        "SubnetMissing",
    ),
]


@pytest.mark.parametrize(("who", "srv", "np", "img", "rk", "reason"), WAITS, ids=[row[0] for row in WAITS])
def test_a_server_waits_and_is_told_why_and_what_helps(
    who: str, srv: Server, np: NodePool | None, img: Image | None, rk: Rack | None, reason: str
) -> None:
    target = choose_boot_target(srv, np, img, rk, URLS)
    assert isinstance(target, Wait), who
    assert target.reason == reason
    assert target.message
    assert target.remedy


def test_who_lacks_an_image_is_told_a_command_that_works() -> None:
    for img in (None, image(available="False")):
        target = choose_boot_target(server(), pool(), img, rack(), URLS)
        assert isinstance(target, Wait)
        assert "provisioner image publish DIRECTORY --store IMAGE-STORE --key IMAGE.PUB" in target.remedy


def test_an_address_of_the_boot_host_that_is_no_word_is_a_wait() -> None:
    target = choose_boot_target(server(), pool(), image(), rack(), BootUrls(boot="http://a b", join="https://a"))
    assert isinstance(target, Wait)
    assert target.reason == "InvalidKernelArguments"


def test_an_accepted_server_boots_its_pools_image_with_all_it_must_know() -> None:
    target = choose_boot_target(server(), pool(kernel_arguments=("hugepages=16",)), image(), rack(), URLS)
    assert isinstance(target, Boot)
    assert target.kernel_url == f"http://10.80.0.1/images/{STORE}/vmlinuz"
    assert target.stage1_url == f"http://10.80.0.1/images/{STORE}/stage1.img"
    assert target.arguments == (
        "initrd=stage1.img",
        "provisioner.server=r01-u01",
        "provisioner.mac=52:54:00:12:34:56",
        "provisioner.url=http://10.80.0.1",
        "provisioner.join=https://10.80.0.1:8443",
        f"provisioner.image={STORE}",
        "provisioner.images=http://10.80.0.1/images",
        "provisioner.address=10.80.0.21/24",
        "provisioner.gateway=10.80.0.1",
        "provisioner.dns=10.80.0.1,10.80.0.2",
        "provisioner.ntp=10.80.0.1",
        "provisioner.mtu=9000",
        "systemd.machine_id=firmware",
        "net.ifnames=0",
        "console=ttyS0,115200",
        "quiet",
        "hugepages=16",
    )


def test_what_the_rack_does_not_say_the_server_is_not_told() -> None:
    bare = rack()
    subnet = replace(bare.spec.subnets[0], gateway=None, dns_servers=(), ntp_servers=(), mtu=None)
    target = choose_boot_target(server(), pool(), image(), rack(subnets=(subnet,)), URLS)
    assert isinstance(target, Boot)
    told = {argument.split("=")[0] for argument in target.arguments}
    assert not told & {"provisioner.gateway", "provisioner.dns", "provisioner.ntp", "provisioner.mtu"}


def test_the_root_comes_from_the_racks_cache_the_kernel_from_the_boot_host() -> None:
    target = choose_boot_target(server(), pool(), image(), rack(cache_url="http://10.80.0.5/"), URLS)
    assert isinstance(target, Boot)
    assert "provisioner.images=http://10.80.0.5/images" in target.arguments
    assert target.kernel_url.startswith("http://10.80.0.1/")


def test_an_arm64_server_has_its_own_console() -> None:
    target = choose_boot_target(server(architecture="arm64"), pool(), image(architecture="arm64"), rack(), URLS)
    assert isinstance(target, Boot)
    assert "console=ttyAMA0" in target.arguments


@pytest.mark.parametrize(
    "argument",
    [
        "a b", "a\tb", "a\nchain http://evil/", "a;reboot", "a&&reboot", "a||shell", "${net0/mac}", "#", "#a", "a\\",
        "", "a\x00b", "ä", "provisioner.join=https://evil", "initrd=evil.img",
    ],
)  # fmt: skip
@pytest.mark.parametrize("owner", ["image", "pool"])
def test_an_argument_that_is_more_than_a_word_never_reaches_a_script(argument: str, owner: str) -> None:
    img = image(kernel_arguments=(argument,)) if owner == "image" else image()
    np = pool(kernel_arguments=(argument,)) if owner == "pool" else pool()
    target = choose_boot_target(server(), np, img, rack(), URLS)
    assert isinstance(target, Wait)
    assert target.reason == "InvalidKernelArguments"
    assert ("Image" if owner == "image" else "NodePool") in target.message
