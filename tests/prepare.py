"""`make test`, before the first test: gets what the tests run and a fresh machine lacks. It takes minutes, once.

Inside a test it would count against that test's time-out. What cannot be had is told, and skipped by the tests.
"""

from __future__ import annotations

import sys

from provisioner.api.errors import ProvisionerError
from provisioner.cli.lab.parts import build_demo_image, demo_state, obtain_parts
from provisioner.lab.demo.up import Report
from provisioner.lab.tools import obtain_tools
from tests.jobs.slurm_site import PACKAGES as SLURM
from tests.tools import IN_CI


def main() -> int:
    """Exit status: 0; in CI, where nothing may be absent, 1 if something is."""
    report, state = Report(sys.stdout), demo_state("tests")
    try:
        _, binaries = obtain_parts(state, report)
        obtain_tools(state.cache, SLURM)
        build_demo_image(state, binaries, report)
    except ProvisionerError as error:
        print(f"tests: {error}")
        return 1 if IN_CI else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
