"""A machine that can stage images, and the store that it has them from."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.node.image import manifest
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import make_machine, write
from tests.node.staged import KEY
from tests.tools import lab_tools


@pytest.fixture
def signify_of_the_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The image has the program itself; here it may be the one of the lab's chroot."""
    program = shutil.which("signify-openbsd")
    if program is None:
        wrapper = tmp_path / "signify"
        command = shlex.join(lab_tools().command(["signify-openbsd"], binds=[tmp_path]))
        wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        wrapper.chmod(0o755)
        program = str(wrapper)
    monkeypatch.setattr(manifest, "SIGNIFY", program)


@pytest.fixture
def store() -> Iterator[FakeImageStore]:
    with FakeImageStore({}) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path, store: FakeImageStore, signify_of_the_image: None) -> Path:
    """Of a machine that runs."""
    machine = make_machine(tmp_path / "machine")
    write(
        machine,
        "proc/cmdline",
        f"initrd=stage1.img provisioner.server=r01-u01 provisioner.url={store.url} "
        f"provisioner.image=sha256-{'0a' * 32} console=ttyS0 quiet\n",
    )
    write(machine, "etc/provisioner/image.pub", KEY.public.encode())
    (machine / "run/provisioner").mkdir(parents=True)
    return machine
