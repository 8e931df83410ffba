"""A module signing key that is kept with the cache, so that the driver of these tests is found there the next time."""

from __future__ import annotations

import datetime
import fcntl
import shutil

import pytest

from provisioner.image.module_signing import ModuleKey, generate_module_key, read_module_key, write_module_key
from tests.tools import CACHE

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="session")
def module_key() -> ModuleKey:
    folder = CACHE / "image-tests" / "module-key"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "module-key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            work = folder.with_name("module-key.partial")
            shutil.rmtree(work, ignore_errors=True)
            write_module_key(work, generate_module_key(NOW))
            work.rename(folder)
    return read_module_key(folder / "module-signing.pem")
