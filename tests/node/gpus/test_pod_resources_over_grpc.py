"""The same, against a real gRPC server with the kubelet's own types: Go's, which the kubelet uses."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provisioner.node.machine.gpus import pod_resources
from provisioner.node.machine.gpus.pod_resources import PodResourcesError, list_gpus
from tests.tools import CACHE, installed

SOURCE = Path(__file__).with_name("pod_resources_server")


@pytest.fixture(scope="module")
def program() -> Path:
    """Built once, and kept by the content of its sources."""
    go = installed("go")
    sources = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    built = CACHE / f"pod-resources-server-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not built.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            subprocess.run([go, "build", "-o", f"{folder}/server", "."], cwd=SOURCE, check=True, timeout=800)
            Path(folder, "server").rename(built)
    return built


def _is_listened_at(path: Path) -> bool:
    """The file is there a moment before anybody listens."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


@contextmanager
def served(program: Path, pods: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        path = Path(folder) / "kubelet.sock"
        server = subprocess.Popen([program, path, str(pods)], stderr=subprocess.DEVNULL)
        try:
            ends = time.monotonic() + 60
            while not _is_listened_at(path):
                assert server.poll() is None
                assert time.monotonic() < ends
                time.sleep(0.01)
            yield str(path)
        finally:
            server.kill()
            server.wait()


@pytest.mark.parametrize("pods", [0, 1, 500])
def test_a_real_server_is_understood_from_no_pod_to_many(program: Path, pods: int) -> None:
    """500 pods are more than the 64 KiB that HTTP/2 lets a server send before it is told to go on."""
    with served(program, pods) as path:
        found = list_gpus(path)
    assert [each["device"] for each in found] == [f"GPU-{number}" for number in range(pods)]
    assert all(each["pod"] == each["device"].replace("GPU", "train") for each in found)
    assert {(each["namespace"], each["container"], each["resource"]) for each in found} <= {
        ("red", "main", "nvidia.com/gpu")
    }


def test_a_call_that_a_real_server_does_not_know_is_refused_in_words(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_resources, "METHOD", "/v1.PodResourcesLister/Nothing")
    with served(program, 1) as path, pytest.raises(PodResourcesError, match="it refused the call"):
        list_gpus(path)
