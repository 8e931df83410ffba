"""The command line of the next kernel, from the one that runs; in full, as a golden file would have it."""

from __future__ import annotations

import re

import pytest

from provisioner.api.servers.server import ServerStatus
from provisioner.boot.script.kernel_arguments import kernel_arguments
from provisioner.node.image.command_line import (
    LEAST_RATE,
    MAX_BYTES,
    CommandLineError,
    image_sources,
    least_rate,
    next_command_line,
)
from tests.boot import objects
from tests.image.samples import NODE

OLD, NEW = "sha256:" + "0a" * 32, "sha256:" + "1b" * 32
RUNNING = (
    "vmlinuz initrd=stage1.img provisioner.server=r01-u01 provisioner.mac=52:54:00:12:34:56 "
    "provisioner.url=http://10.80.0.1 provisioner.join=https://10.80.0.1:8443 "
    f"provisioner.image={OLD.replace(':', '-')} provisioner.images=http://10.80.0.9/images "
    "provisioner.address=10.80.0.21/24 provisioner.gateway=10.80.0.1 provisioner.mtu=9000 "
    "systemd.machine_id=firmware net.ifnames=0 console=ttyS0,115200 panic=30 quiet hugepages=64 console=tty0\n"
)


def test_the_servers_own_words_stay_and_those_of_image_and_pool_are_the_intents() -> None:
    assert next_command_line(RUNNING, NEW, ["panic=60", "isolcpus=2-3"]) == (
        "provisioner.server=r01-u01 provisioner.mac=52:54:00:12:34:56 "
        "provisioner.url=http://10.80.0.1 provisioner.join=https://10.80.0.1:8443 "
        f"provisioner.image={NEW.replace(':', '-')} provisioner.images=http://10.80.0.9/images "
        "provisioner.address=10.80.0.21/24 provisioner.gateway=10.80.0.1 provisioner.mtu=9000 "
        "systemd.machine_id=firmware net.ifnames=0 console=ttyS0,115200 panic=60 isolcpus=2-3"
    )


def test_a_kexec_gives_the_kernel_what_the_boot_script_would_have_given_it() -> None:
    """The boot service renders both images for one server; only the initrd's name, which is iPXE's, is left out."""
    server = objects.server(status=ServerStatus(address="10.80.0.21", subnet_name="boot"))
    pool = objects.pool(kernel_arguments=("a=1",))

    def rendered(digest: str, arguments: tuple[str, ...]) -> str:
        image = objects.image(digest=digest, kernel_arguments=arguments)
        return " ".join(kernel_arguments(server, pool, image, objects.rack(), objects.URLS))

    after = next_command_line(rendered(OLD, ("panic=30", "quiet")), NEW, ["panic=60", "a=1"])
    assert "initrd=stage1.img " + after == rendered(NEW, ("panic=60",))


@pytest.mark.parametrize(
    ("running", "digest", "arguments", "said"),
    [
        (RUNNING, NEW, ["provisioner.url=http://10.0.0.66"], "'provisioner.url=http://10.0.0.66' belongs to"),
        (RUNNING, NEW, ["initrd=other"], "belongs to the provisioner"),
        (RUNNING, NEW, ["quiet init=/bin/sh"], "is not one plain word"),
        (RUNNING, NEW, ["a\nb"], "is not one plain word"),
        (RUNNING, NEW, [""], "is not one plain word"),
        (RUNNING, NEW, ["x" * MAX_BYTES], f"the kernel takes {MAX_BYTES}"),
        (RUNNING, "sha256:short", [], "not sha256: and 64"),
        ("quiet", NEW, [], "no provisioner.image"),
    ],
)
def test_what_is_no_command_line_of_ours_is_refused(running: str, digest: str, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandLineError, match=r".") as caught:
        next_command_line(running, digest, arguments)
    assert said in str(caught.value)


def test_images_come_from_where_the_running_boot_had_its_own() -> None:
    assert image_sources(RUNNING) == ["http://10.80.0.9/images", "https://10.80.0.1:8443/images"]
    assert image_sources("provisioner.url=http://10.80.0.1") == ["http://10.80.0.1/images"]
    same = "provisioner.url=http://10.80.0.1 provisioner.images=http://10.80.0.1/images"
    assert image_sources(same) == ["http://10.80.0.1/images"]
    assert image_sources("provisioner.images=file:///etc") == []


def test_where_the_running_boot_was_told_of_a_second_source_it_comes_before_the_boot_host() -> None:
    said = (
        "provisioner.url=http://10.80.0.1 provisioner.images=http://10.80.0.8 provisioner.nextimages=http://10.80.0.9"
    )
    assert image_sources(said) == ["http://10.80.0.8", "http://10.80.0.9", "http://10.80.0.1/images"]


def test_the_least_rate_is_the_running_boots_or_stage_1s_own() -> None:
    assert least_rate("provisioner.leastrate=65536") == 65536
    for nonsense in (
        "",
        "provisioner.leastrate=",
        "provisioner.leastrate=9x",
        "provisioner.leastrate=0",
        "provisioner.leastrate=" + "9" * 40,
    ):
        assert least_rate(nonsense) == LEAST_RATE
    (own,) = re.findall(r"least_rate=(\d+)", (NODE / "stage1/lib/stage1/arguments.sh").read_text())
    assert int(own) == LEAST_RATE
