"""An image in each format, and how a registry of a test is reached: with small chunks, and no patience."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.image.registry.access import Limits, open_access
from provisioner.image.registry.client import Registry
from provisioner.image.registry.reference import parse_repository
from provisioner.image.registry.transport import RegistryTransport
from tests.image.made_images import LAYERED, write_layered

LIMITS = Limits(
    first_wait_seconds=0.01, longest_wait_seconds=5, chunk_bytes=256, call_seconds=20, silence_seconds=15,
)  # fmt: skip

Reach = Callable[..., AbstractContextManager[Registry]]


@pytest.fixture(scope="session")
def key() -> SecretKey:
    return SecretKey.generate(lambda size: b"r" * size)


@pytest.fixture
def built(tmp_path: Path, key: SecretKey) -> Path:
    """A layered image in a store of its own; its base has more than one chunk."""
    return write_layered(tmp_path / "built", key, {**LAYERED, "layer.base": bytes(range(256)) * 4})


@pytest.fixture
def configuration(tmp_path: Path) -> Callable[..., Path]:
    """Docker's file with a name and password for a host."""

    def write(host: str, username: str, password: str, **more: Any) -> Path:
        file = tmp_path / "docker.json"
        auth = base64.b64encode(f"{username}:{password}".encode()).decode()
        file.write_text(json.dumps({"auths": {host: {"auth": auth, **more}}}))
        file.chmod(0o600)
        return file

    return write


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reach:
    """A registry at an address, without the credentials of who runs the tests."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-docker"))

    @contextmanager
    def connect(
        address: str, *, sleeps: list[float] | None = None, limits: Limits = LIMITS, **more: Any
    ) -> Iterator[Registry]:
        access = open_access(parse_repository(address), limits=limits, **more)
        waits = [] if sleeps is None else sleeps
        with RegistryTransport(access, sleep=waits.append, spread=lambda: 1.0) as transport:
            yield Registry(transport)

    return connect
