"""`make test`, before the first test: gets what the tests run and a fresh machine lacks. It takes minutes, once.

Inside a test it would count against that test's time-out. What cannot be had is told, and skipped by the tests.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from provisioner.api.errors import ProvisionerError
from provisioner.cli.lab.parts import Report, build_demo_image, demo_state, obtain_parts
from provisioner.cli.progress import Progress
from provisioner.image.toolkit.build import obtain_toolkit
from provisioner.lab.tools import ARM64_PACKAGES, obtain_tools
from tests.jobs.slurm_site import PACKAGES as SLURM
from tests.tools import IN_CI


def main() -> int:
    """Exit status: 0; in CI, where nothing may be absent, 1 if something is."""
    state = demo_state("tests")
    try:
        # Slurm's chroot, and QEMU for arm64, come over the network while Kubernetes is compiled.
        with Progress() as progress, ThreadPoolExecutor(max_workers=1) as beside:
            others = [beside.submit(obtain_tools, state.cache, each) for each in (SLURM, ARM64_PACKAGES)]
            others.append(beside.submit(obtain_toolkit, "x86_64", state.cache / "image-build"))
            _, binaries = obtain_parts(state, Report(progress))
            for pool in ("gpu", "gpus"):
                build_demo_image(state, binaries.kubelet, Report(progress), pool=pool)
            for each in others:
                each.result()
    except ProvisionerError as error:
        print(f"tests: {error}")
        return 1 if IN_CI else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
