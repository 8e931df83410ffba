"""The attacks of tests/network/isolation once more, where VPCs are VRFs: on the kernel of an image, in a machine."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.image.build import Built
from tests.network.vrf.guest import ENDED, run_tests
from tests.tools import lab_tools


def test_tenants_are_kept_apart_by_vrfs_as_by_namespaces(built: Built, tmp_path: Path) -> None:
    attacks = "tests/network/isolation/test_attacks.py"
    storm = f"--deselect={attacks}::test_a_storm_of_a_host_is_answered_in_measure"  # emulated it is never fast enough
    said = run_tests(lab_tools(), built.folder, tmp_path, ["-q", attacks, storm], VPC_DOMAINS="vrf")
    ended = re.search(rf"{ENDED}(\d+)", said)
    assert ended is not None, said[-4000:]
    assert ended[1] == "0", said[-8000:]
    assert re.search(r"\d+ passed", said), said[-2000:]
