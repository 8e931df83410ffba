"""One virtual rack for all journeys: it is booted once."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.binaries.obtain import Binaries
from lab.demo.state import DemoState
from tests.emulator import EmulatorFault
from tests.journey.virtual_rack import VirtualRack, keep_logs, lab_command, lost_timers
from tests.tools import CACHE, need_root

BOOT_SECONDS = 1500
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def rack(
    binaries: Binaries, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VirtualRack]:
    """Three servers without an operating system, each with a TPM, that have become Ready nodes of a pool that requires
    proof."""
    need_root("make network namespaces and mounts for a virtual rack")
    state = DemoState(cache=CACHE, name=f"journey{os.getpid()}")
    up = ("up", "--name", state.name, "--servers=UEFI,UEFI,UEFI", "--memory=1536", f"--timeout={BOOT_SECONDS}")
    with ends(state, request.session, tmp_path_factory):
        subprocess.run(lab_command(*up), check=True, stdin=subprocess.DEVNULL)
        yield VirtualRack(state, binaries.kubectl)


@contextmanager
def ends(state: DemoState, session: pytest.Session, folders: pytest.TempPathFactory) -> Iterator[None]:
    """The lab goes with the block and leaves nothing behind, but for its logs where a test has failed."""
    failed_before = session.testsfailed
    has_ended_well = False
    try:
        yield
        has_ended_well = session.testsfailed == failed_before
    finally:
        if not has_ended_well:
            keep_logs(state, folders.mktemp(f"logs-of-{state.name}"))
        for line in lost_timers(state):
            warnings.warn(line, EmulatorFault, stacklevel=2)
        subprocess.run(lab_command("down", "--name", state.name), check=True)
        assert not Path(f"/run/netns/provisioner-{state.name}").exists()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Take the rack down as soon as a worker leaves this folder: three machines that do nothing have cost a fifth of a
    core."""
    try:
        return (yield)
    finally:
        if nextitem is not None and HERE not in nextitem.path.parents:
            for definition in item.session._fixturemanager.getfixturedefs("rack", item) or ():
                definition.finish(item._request)  # type: ignore[attr-defined]
