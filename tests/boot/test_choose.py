"""What a server boots, as a table: each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.servers.rack import RackStatus
from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.api.servers.server_status import BootProgress
from provisioner.boot.script.choose import Boot, KeepWaiting, choose_boot_target
from provisioner.boot.script.kernel_arguments import BootUrls
from tests.boot.objects import STORE, URLS, at, condition, image, layered_image, pool, rack, server

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
    assert isinstance(target, KeepWaiting), who
    assert target.reason == reason
    assert target.message
    assert target.remedy


def test_who_lacks_an_image_is_told_a_command_that_works() -> None:
    for img in (None, image(available="False")):
        target = choose_boot_target(server(), pool(), img, rack(), URLS)
        assert isinstance(target, KeepWaiting)
        assert "provisioner image publish DIRECTORY --store IMAGE-STORE --key IMAGE.PUB" in target.remedy


def test_an_address_of_the_boot_host_that_is_no_word_is_a_wait() -> None:
    target = choose_boot_target(server(), pool(), image(), rack(), BootUrls(boot="http://a b", join="https://a"))
    assert isinstance(target, KeepWaiting)
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


def test_of_an_image_in_layers_kernel_and_stage_1_are_fetched_by_their_own_digests() -> None:
    target = choose_boot_target(server(), pool(), layered_image("base", available="True"), rack(), URLS)
    assert isinstance(target, Boot)
    assert target.kernel_url == "http://10.80.0.1/images/parts/sha256-" + "6b" * 32
    assert target.stage1_url == "http://10.80.0.1/images/parts/sha256-" + "73" * 32
    assert f"provisioner.image={STORE}" in target.arguments


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


CACHE, BOOT_HOST = "http://10.80.0.5/images", "http://10.80.0.1/images"


def sources(where: Rack, attempt: int | None = None, progress: BootProgress | None = None) -> list[str]:
    """Where stage-1 is told to fetch from, before the boot host that it always has behind them."""
    order = None
    if attempt is not None:
        order = BootOrder(id="order-1", reason="TimedOut", ordered_time=at(0), attempt=attempt)
    status = ServerStatus(address="10.80.0.21", subnet_name="boot", order=order, progress=progress)
    target = choose_boot_target(server(status=status), pool(), image(), where, URLS)
    assert isinstance(target, Boot)
    found = [argument.partition("=") for argument in target.arguments]
    return [value for name, _, value in found if name in ("provisioner.images", "provisioner.nextimages")]


def test_the_next_attempt_begins_with_the_other_source() -> None:
    cached = rack(cache_url="http://10.80.0.5")
    assert sources(cached) == [CACHE]
    assert [sources(cached, attempt) for attempt in (1, 2, 3)] == [[CACHE], [BOOT_HOST, CACHE], [CACHE]]
    assert [sources(rack(), attempt) for attempt in (1, 2, 3)] == [[BOOT_HOST]] * 3


@pytest.mark.parametrize("stage", ["Stage1", "Root", "System"])
def test_what_machines_say_of_a_source_changes_no_order_of_sources(stage: Any) -> None:
    cached = rack(cache_url="http://10.80.0.5")
    progress = BootProgress(stage=stage, message=f"source {CACHE}: observed 0 KiB/s; expected at least 256 KiB/s")
    for attempt in (1, 2):
        assert sources(cached, attempt, progress) == sources(cached, attempt)


def test_a_cache_that_is_out_is_left_out_and_the_boot_host_never() -> None:
    cached = rack(cache_url="http://10.80.0.5")
    for status, expected in (("True", [CACHE]), ("False", [BOOT_HOST]), ("Unknown", [CACHE])):
        said = replace(condition("CacheAvailable", status), observed_generation=cached.metadata.generation)
        assert sources(replace(cached, status=RackStatus(conditions=(said,))), 1) == expected


def test_what_was_said_of_another_cache_does_not_count() -> None:
    cached = rack(cache_url="http://10.80.0.5")
    said = replace(condition("CacheAvailable", "False"), observed_generation=3)
    cached = replace(cached, metadata=replace(cached.metadata, generation=4), status=RackStatus(conditions=(said,)))
    assert sources(cached, 1) == [CACHE]


def test_the_racks_least_rate_is_told_and_else_none() -> None:
    for given, expected in ((None, []), (65536, ["provisioner.leastrate=65536"])):
        target = choose_boot_target(server(), pool(), image(), rack(least_rate_bytes_per_second=given), URLS)
        assert isinstance(target, Boot)
        assert [word for word in target.arguments if "leastrate" in word] == expected


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
    assert isinstance(target, KeepWaiting)
    assert target.reason == "InvalidKernelArguments"
    assert ("Image" if owner == "image" else "NodePool") in target.message
