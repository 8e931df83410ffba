"""A machine has the same command line however it was booted: by iPXE, or by the agent's kexec."""

from __future__ import annotations

import pytest

from provisioner.api.images.image import intent_arguments
from provisioner.boot.script.kernel_arguments import INITRD_NAME, kernel_arguments
from provisioner.node.image.command_line import next_command_line
from tests.boot.objects import DIGEST, URLS, image, pool, rack, server

OLD = image("old", digest="sha256:" + "cd" * 32, kernel_arguments=("quiet", "loglevel=3"))

POOLS = {
    "nothing": pool(),
    "an argument": pool(kernel_arguments=("iommu.passthrough=1",)),
    "another console": pool(kernel_arguments=("console=tty0", "net.ifnames=1")),
    "one argument twice": pool(kernel_arguments=("hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=8")),
}
RACKS = {
    "all that a subnet has": rack(),
    "a cache": rack(cache_url="http://10.80.0.5/cache/", least_rate_bytes_per_second=65536),
}


@pytest.mark.parametrize("pool_adds", POOLS)
@pytest.mark.parametrize("rack_has", RACKS)
@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_kexec_gives_a_kernel_what_the_boot_script_would(pool_adds: str, rack_has: str, architecture: str) -> None:
    host, wanted_pool, new = server(architecture=architecture), POOLS[pool_adds], image()
    running = kernel_arguments(host, pool(kernel_arguments=("mitigations=off",)), OLD, RACKS[rack_has], URLS)
    netbooted = kernel_arguments(host, wanted_pool, new, RACKS[rack_has], URLS)
    kexecd = next_command_line(" ".join(running), DIGEST, intent_arguments(wanted_pool, new)).split()
    # The name of a file of iPXE's, which a kernel that gets its initramfs by kexec has no use for.
    assert kexecd == [word for word in netbooted if word != f"initrd={INITRD_NAME}"]
    assert f"provisioner.image={DIGEST.replace(':', '-')}" in kexecd
    assert not {"mitigations=off", "loglevel=3"} & set(kexecd), "of the image and the pool of the boot before"


def test_what_the_image_adds_comes_before_what_the_pool_adds() -> None:
    """Of two of a kind most parts of a kernel take the last one: the pool has the last word."""
    assert intent_arguments(pool(kernel_arguments=("quiet=0",)), image()) == ("quiet", "quiet=0")
