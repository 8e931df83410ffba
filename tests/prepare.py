"""`make test`, before the first test: gets what the tests run and a fresh machine lacks. It takes minutes, once.

Inside a test it would count against that test's time-out. What cannot be had is told, and skipped by the tests.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.binaries.etcd_tools import obtain_etcd_tools
from lab.binaries.helm import obtain_helm
from lab.cli.parts import Report, build_demo_image, demo_state, obtain_parts
from lab.tools import ARM64_PACKAGES, obtain_tools
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cli.progress import Progress
from provisioner.image.toolkit.build import obtain_toolkit
from tests.ansible.hosts import PACKAGES as BOOT_HOST
from tests.ansible.wheels import obtain_wheels
from tests.jobs.slurm_site import PACKAGES as SLURM
from tests.packaging.booted_host import unpack_systemd
from tests.packaging.made import make, read_ingredients
from tests.tools import IN_CI


def main() -> int:
    """Exit status: 0; in CI, where nothing may be absent, 1 if something is."""
    state = demo_state("tests")
    try:
        # Slurm's chroot, QEMU for arm64 and a boot host come over the network while Kubernetes is compiled.
        with Progress() as progress, ThreadPoolExecutor(max_workers=1) as beside:
            others = [beside.submit(obtain_tools, state.cache, each) for each in (SLURM, ARM64_PACKAGES, BOOT_HOST)]
            others.append(beside.submit(_make_containers))
            others.append(beside.submit(obtain_wheels, state.cache))
            others.append(beside.submit(obtain_toolkit, "x86_64", state.cache / "image-build"))
            others.append(beside.submit(obtain_helm, state.cache))
            others.append(beside.submit(obtain_etcd_tools, state.cache))
            _, binaries = obtain_parts(state, Report(progress))
            for pool in ("gpu", "gpus"):
                build_demo_image(state, binaries.kubelet, Report(progress), pool=pool)
            for each in others:
                each.result()
    except ProvisionerError as error:
        print(f"tests: {error}")
        return 1 if IN_CI else 0
    return 0


def _make_containers() -> None:
    """Their layers are kept by content: what tests make anew is this project's own. And systemd, to run units."""
    unpack_systemd()
    with tempfile.TemporaryDirectory() as folder:
        for ingredients in read_ingredients(Path(folder)).values():
            make(ingredients)


if __name__ == "__main__":
    sys.exit(main())
