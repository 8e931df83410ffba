"""A host boots through its DPU, with other people's clients: DHCP as firmware and as iPXE, TFTP, HTTP, passages."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.boot.image_cache import ImageCache
from provisioner.network.agent.boot.proxy import Proxy
from provisioner.network.agent.boot.server import BootServer
from tests.network.agent.boot.boot_host import (
    FIRST_STAGE,
    IMAGE,
    KERNEL,
    LAYERED,
    LAYERED_MANIFEST,
    ROOT,
    BootHost,
    boot_host,
    part_of,
)
from tests.network.agent.boot.site import BOOT_HOST, HOST_ADDRESS, SERVICES, Site, boots, told
from tests.network.agent.dhcp.clients import Client, running
from tests.network.agent.rack import Rack
from tests.network.agent.specs import ONE, port, vpc
from tests.tools import installed

IN_A_VPC = told(host_boot=boots(), vpcs=(vpc(),), ports=(port("10.1.0.3"), port("10.1.0.5", function="pf1")))
IN_NONE = told(host_boot=boots())
MOST_BYTES = 4 << 20


@dataclass
class Booting:
    """A site whose agent serves its host, and what the boot host heard."""

    site: Site
    boot_host: BootHost
    server: BootServer
    cache: Path

    def curl(self, *arguments: str) -> tuple[int, bytes]:
        """Status and body of a request from the host's boot address."""
        out = self.cache.parent / "out"
        out.unlink(missing_ok=True)
        command = [installed("curl"), "-s", "-g", "-m", "120", "-o", str(out), "-w", "%{http_code}", "--path-as-is"]
        ran = self.site.host.run(*command, "--interface", HOST_ADDRESS, *arguments)
        return int(ran.stdout or 0), out.read_bytes() if out.exists() else b""

    def get(self, path: str, *arguments: str, at: str = BOOT_HOST) -> tuple[int, bytes]:
        return self.curl(*arguments, f"http://{at}{path}")


@contextlib.contextmanager
def booting(network: Rack, folder: Path, spec: DPUNetworkSpec) -> Iterator[Booting]:
    site, said = Site(network), list[str]()
    cache = ImageCache(folder / "cache", MOST_BYTES)
    cache.empty()
    done = site.enforce(spec)
    assert done.agrees, done.problems
    with boot_host(site.far, SERVICES.dpu_join_port, SERVICES.api_port, SERVICES.join_port) as far:
        server = BootServer(SERVICES, Proxy(SERVICES, cache, said.append), said.append)

        assert done.boot == site.dpu.inside(site.enforcer.boot), "an agent that was just started knows it, too"
        site.dpu.inside(lambda: server.serve(done.boot))
        try:
            yield Booting(site, far, server, folder / "cache")
        finally:
            server.stop()
    assert said == [] or "was not given" in said[0]


@pytest.fixture(params=[IN_NONE, IN_A_VPC], ids=["in no VPC", "in a VPC"])
def either(request: pytest.FixtureRequest, network: Rack, tmp_path: Path) -> Iterator[Booting]:
    with booting(network, tmp_path, request.param) as made:
        yield made


@pytest.fixture
def host(network: Rack, tmp_path: Path) -> Iterator[Booting]:
    with booting(network, tmp_path, IN_A_VPC) as made:
        made.site.take_boot_address()
        yield made


def test_firmware_gets_the_boot_address_and_then_its_first_stage_by_tftp(either: Booting, tmp_path: Path) -> None:
    client = Client("udhcpc", either.site.host, tmp_path, "-V", "PXEClient:Arch:00007:UNDI:003016", "-x", "0x5d:0007")
    with client.running():
        assert HOST_ADDRESS in client.await_event("bound")
    ran = either.site.host.run(
        installed("curl"), "-s", "-m", "120", "-o", str(tmp_path / "nbp"), f"tftp://{BOOT_HOST}/snponly.efi"
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "nbp").read_bytes() == FIRST_STAGE
    denied = either.site.host.run(installed("curl"), "-s", "-m", "120", f"tftp://{BOOT_HOST}/etc/passwd")
    assert denied.returncode == 68, "file not found"


def test_its_operating_system_gets_the_address_of_its_vpc(host: Booting, tmp_path: Path) -> None:
    host.site.host.ip("addr", "flush", "dev", "eth0")
    for name in ("udhcpc", "dhclient"):
        client = Client(name, host.site.host, tmp_path)
        with client.running():
            told_of = client.await_event("bound" if name == "udhcpc" else "BOUND")
        assert "10.1.0.3" in told_of


def test_it_fetches_its_script_and_image_and_what_is_kept_is_not_asked_for_again(either: Booting) -> None:
    either.site.take_boot_address()
    script = f"/ipxe/{either.site.host.mac.replace(':', '-')}.ipxe"
    either.boot_host.files[script] = b"#!ipxe\n# its own\n"
    assert either.get("/boot.ipxe") == (200, b"#!ipxe\n# first\n")
    assert either.get(f"{script}?uuid=4c4c4544&serial=A%20B") == (200, b"#!ipxe\n# its own\n")
    for _ in range(2):
        assert either.get(f"{IMAGE}/vmlinuz") == (200, KERNEL)
    assert either.boot_host.times(f"{IMAGE}/vmlinuz") == 1
    assert either.get(f"{IMAGE}/vmlinuz", "-r", "6-11") == (206, b"kernel")
    assert either.boot_host.times(f"{IMAGE}/vmlinuz") == 1


def test_parts_are_fetched_by_their_own_digest_before_their_manifest_is_known(host: Booting) -> None:
    for _ in range(2):
        assert host.get(part_of(KERNEL)) == (200, KERNEL)
    assert host.boot_host.times(part_of(KERNEL)) == 1
    assert host.get(part_of(KERNEL), "-r", "6-11") == (206, b"kernel")
    assert host.get(f"{LAYERED}/manifest") == (200, LAYERED_MANIFEST)
    assert host.get(f"{IMAGE}/vmlinuz") == (200, KERNEL), "the same file, of an image of format 1"
    assert host.boot_host.times(f"{IMAGE}/vmlinuz") == 0
    assert host.get(f"{LAYERED}/vmlinuz")[0] == 404, "no file lies beside that manifest"
    assert host.get(part_of(ROOT), "-r", "256-511") == (206, ROOT[256:512])
    assert host.get(part_of(ROOT), "-r", f"{len(ROOT)}-")[0] == 416
    assert host.get(part_of(b"not in any image"))[0] == 502


@pytest.mark.parametrize("bad", [KERNEL[:-1] + b"!", KERNEL[:-9], KERNEL + b"!"], ids=["other", "short", "long"])
def test_a_false_part_never_arrives_whole_and_is_not_kept(host: Booting, bad: bytes) -> None:
    host.boot_host.files[part_of(KERNEL)] = bad
    _, got = host.get(part_of(KERNEL))
    assert len(got) < len(bad)
    assert list(host.cache.iterdir()) == []
    host.boot_host.files[part_of(KERNEL)] = KERNEL
    assert host.get(part_of(KERNEL)) == (200, KERNEL)


def test_a_file_that_there_is_no_room_for_goes_by_whole(host: Booting) -> None:
    assert len(ROOT) > MOST_BYTES
    for _ in range(2):
        assert host.get(f"{IMAGE}/root.squashfs") == (200, ROOT)
    assert host.boot_host.times(f"{IMAGE}/root.squashfs") == 2
    assert host.get(f"{IMAGE}/root.squashfs", "-r", "256-511") == (206, ROOT[256:512])
    assert list(host.cache.iterdir()) == []


@pytest.mark.parametrize("bad", [KERNEL[:-1] + b"!", KERNEL[:-9], KERNEL + b"!"], ids=["other", "short", "long"])
def test_a_false_file_never_arrives_whole_and_is_not_kept(host: Booting, bad: bytes) -> None:
    host.boot_host.files[f"{IMAGE}/vmlinuz"] = bad
    _, got = host.get(f"{IMAGE}/vmlinuz")
    assert len(got) < len(KERNEL)
    assert list(host.cache.iterdir()) == []
    host.boot_host.files[f"{IMAGE}/vmlinuz"] = KERNEL
    assert host.get(f"{IMAGE}/vmlinuz") == (200, KERNEL)


def test_a_false_manifest_is_not_given(host: Booting) -> None:
    host.boot_host.files[f"{IMAGE}/manifest"] += b"#"
    assert host.get(f"{IMAGE}/manifest")[0] == 502
    assert host.get(f"{IMAGE}/vmlinuz")[0] == 502


def test_a_racks_cache_is_the_dpu_as_well(host: Booting) -> None:
    host.site.host.ip("route", "replace", "default", "via", "192.0.2.1")
    assert host.get(f"{IMAGE}/vmlinuz", at="198.51.100.7") == (200, KERNEL)


def test_it_reports_its_own_progress_and_nobody_elses(host: Booting) -> None:
    mac, other = host.site.host.mac, "52:54:00:66:66:66"
    assert host.get("/v1/progress", "-d", f"mac={mac}&stage=Root&bootID=x")[0] == 204
    assert host.get("/v1/progress", "-d", f"mac={other}&stage=Root&bootID=x")[0] == 403
    assert host.get("/v1/progress", "-d", f"mac={mac}&mac={other}&stage=Root")[0] == 403
    as_json = ("-H", "Content-Type: application/json", "-d")
    assert host.get("/v1/progress", *as_json, f'{{"mac":"{mac}","stage":"Root"}}')[0] == 204
    assert host.get("/v1/progress", *as_json, f'{{"mac":"{mac}","mac":"{other}"}}')[0] == 403
    assert [each[0] for each in host.boot_host.asked] == ["POST", "POST"]


@pytest.mark.parametrize(
    "path",
    [
        "/ipxe/52-54-00-66-66-66.ipxe",
        "/v1/unknown?mac=52-54-00-66-66-66",
        "/v1/ipxe?mac=52-54-00-66-66-66",
        "/healthz",
        "/by-dpu/v1/join",
        "/images/../v1/unknown",
        "/images/sha256-" + "0" * 63 + "/manifest",
        "/",
    ],
)
def test_nothing_else_is_asked_of_the_boot_host_for_it(host: Booting, path: str) -> None:
    assert host.get(path)[0] == 404
    assert host.get("/boot.ipxe", "-X", "DELETE")[0] == 405
    assert host.boot_host.asked == []


def test_its_join_and_its_kubelet_go_by_the_dpus_own_address(host: Booting) -> None:
    for to, arrives in ((SERVICES.join_port, SERVICES.dpu_join_port), (SERVICES.api_port, SERVICES.api_port)):
        ran = host.site.host.run("busybox", "nc", "-w", "60", BOOT_HOST, str(to), stdin="hello\n")
        assert ran.stdout == "heard hello\n"
        assert host.boot_host.passed[arrives] == [(ONE, b"hello\n")]
    assert host.boot_host.passed[SERVICES.join_port] == []


def test_connections_that_say_nothing_leave_room_once_they_end_and_no_more_are_taken_than_that(host: Booting) -> None:
    quiet = [host.site.host.command("busybox", "nc", "-w", "10", BOOT_HOST, "80") for _ in range(16)]

    def established() -> int:
        return len(host.site.host.run("ss", "-Htn", "state", "established").stdout.splitlines())

    with contextlib.ExitStack() as stack:
        for command in quiet:
            stack.enter_context(running(["sh", "-c", f"sleep 60 | {' '.join(command)}"]))
        deadline = time.monotonic() + 120
        while established() < len(quiet):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        assert host.get("/boot.ipxe")[0] == 0
    deadline = time.monotonic() + 180
    while host.get("/boot.ipxe")[0] != 200:
        assert time.monotonic() < deadline


def test_a_plane_that_somebody_deleted_is_made_anew_and_served(host: Booting) -> None:
    site = host.site
    assert host.get("/boot.ipxe")[0] == 200
    site.dpu.run("ip", "netns", "delete", site.plane())
    done = site.enforce(IN_A_VPC)
    assert (done.agrees, done.mended) == (True, True)
    assert done.boot is not None
    site.dpu.inside(lambda: host.server.serve(done.boot))
    assert host.get("/boot.ipxe")[0] == 200


def test_why_a_host_is_not_served_is_said_once_and_told_each_time_until_it_is(host: Booting) -> None:
    site, said = host.site, list[str]()
    boot = site.enforce(IN_A_VPC).boot
    other = BootServer(SERVICES, Proxy(SERVICES, ImageCache(host.cache, 0), said.append), said.append)
    try:
        faults = [site.dpu.inside(lambda: other.serve(boot)) for _ in range(2)]
        assert all(each is not None and "Address already in use" in each for each in faults), (
            "host.server has its ports"
        )
        assert said == faults[:1]
        host.server.stop()
        assert site.dpu.inside(lambda: other.serve(boot)) is None
        assert host.get("/boot.ipxe")[0] == 200
    finally:
        other.stop()


def test_a_host_that_boots_through_it_no_more_is_not_served(host: Booting) -> None:
    site = host.site
    done = site.enforce(told(host_boot=None, vpcs=IN_A_VPC.vpcs, ports=IN_A_VPC.ports))
    assert done.boot is None
    site.dpu.inside(lambda: host.server.serve(done.boot))
    assert host.get("/boot.ipxe", "-m", "2")[0] == 0
    site.host.take("10.1.0.3")
    assert site.host.pings("10.1.0.2"), "it is in its VPC as before"


def test_in_its_vpc_it_is_as_it_would_be_without_a_boot_plane(host: Booting) -> None:
    site = host.site
    site.host.take("10.1.0.3")
    site.dpu.hosts["pf1"].take("10.1.0.5")
    assert site.host.pings("10.1.0.5")
    assert site.host.pings("10.1.0.2")


def test_its_connections_outlive_the_way_of_its_port_out_of_a_vpc_and_into_it(host: Booting, tmp_path: Path) -> None:
    site = host.site
    command = site.host.command("busybox", "nc", "-w", "120", BOOT_HOST, str(SERVICES.api_port))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kubelet:
        deadline = time.monotonic() + 120
        while not host.site.host.run("ss", "-Htn", "state", "established").stdout:
            assert time.monotonic() < deadline, "it connects"
            time.sleep(0.05)
        for spec in (IN_NONE, IN_A_VPC):
            done = site.enforce(spec)
            site.dpu.inside(lambda done=done: host.server.serve(done.boot))
        said, _ = kubelet.communicate(b"hello\n", timeout=180)
    assert said == b"heard hello\n"
    client = Client("udhcpc", site.host, tmp_path, "-V", "PXEClient:Arch:00007:UNDI:003016", "-x", "0x5d:0007")
    with client.running():
        assert HOST_ADDRESS in client.await_event("bound")
