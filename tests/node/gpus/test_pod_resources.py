"""Who has which GPU, as the kubelet says it over gRPC: well, in many frames, not at all, and not so."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.machine.gpus import pod_resources
from provisioner.node.machine.gpus.pod_resources import MOST_BYTES, PodResourcesError, list_gpus, read_pods
from tests.node.gpus.fake_kubelet import answer, fake_kubelet, field, frame, pod

MESSAGE = (
    pod("red", "train-0", "GPU-1", "GPU-2")
    + pod("blue", "serve", "MIG-7", container="model")
    + pod("kube-system", "cni", "rdma-0")
)
DEVICES = [
    ("red", "train-0", "main", "GPU-1"),
    ("red", "train-0", "main", "GPU-2"),
    ("blue", "serve", "model", "MIG-7"),
]


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:  # the paths of pytest are too long for a socket
        yield Path(folder) / "kubelet.sock"


def listed(path: Path) -> list[tuple[str, ...]]:
    return [tuple(each[key] for key in ("namespace", "pod", "container", "device")) for each in list_gpus(str(path))]


@pytest.mark.parametrize("size", [16384, 7])
def test_gpus_of_pods_are_listed_however_many_frames_they_come_in(path: Path, size: int) -> None:
    with fake_kubelet(path, answer(MESSAGE, size)) as asked:
        assert listed(path) == DEVICES
    assert asked[0].startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/v1.PodResourcesLister/List" in asked[0]


def test_a_node_without_pods_has_an_answer_that_is_empty(path: Path) -> None:
    with fake_kubelet(path, answer(b"")):
        assert listed(path) == []


def test_data_that_is_padded_is_read_without_its_padding(path: Path) -> None:
    body = struct.pack(">BI", 0, len(MESSAGE)) + MESSAGE
    with fake_kubelet(path, frame(0, 8 | 1, 1, bytes([3]) + body + bytes(3))):
        assert listed(path) == DEVICES


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (frame(4, 0, 0) + frame(1, 5, 1, b"\x88"), "it refused the call"),
        (frame(3, 0, 1, struct.pack(">I", 7)), "error 7"),
        (frame(7, 0, 0, struct.pack(">II", 0, 11)), "error 11"),
        (answer(MESSAGE)[:-20], "hung up"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "more than allowed"),
        (frame(0, 1, 1, struct.pack(">BI", 1, 3) + b"abc"), "not one plain message"),
        (frame(0, 1, 1, struct.pack(">BI", 0, 4) + b"abc"), "not one plain message"),
        (answer(field(1, b"\x0a\x7f")), "cut short"),
        (frame(0, 0, 1, bytes(16384)) * (2 * MOST_BYTES // 16384 + 1), "more than"),
        (frame(0, 8 | 1, 1), "padding"),
        (frame(0, 8 | 1, 1, bytes([9]) + b"abc"), "padding"),
        (b"", "hung up"),
    ],
)
def test_an_answer_that_is_none_is_told_and_bounded(path: Path, reply: bytes, words: str) -> None:
    with fake_kubelet(path, reply), pytest.raises(PodResourcesError, match=words):
        list_gpus(str(path))


def test_a_kubelet_that_says_nothing_is_not_waited_for_and_one_that_is_not_there_neither(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_resources, "SECONDS", 0.2)
    with fake_kubelet(path, None), pytest.raises(PodResourcesError, match="timed out"):
        list_gpus(str(path))
    with pytest.raises(PodResourcesError, match="No such file"):
        list_gpus(str(path))


@given(st.binary(max_size=200), st.integers(0, len(MESSAGE)))
def test_no_message_raises_anything_but_what_it_promises(noise: bytes, begins: int) -> None:
    """Noise of its own, and noise in a message that was good until then."""
    found = list(read_pods(MESSAGE))
    for message in (noise, MESSAGE[:begins] + noise):
        with suppress(ValueError):
            found += read_pods(message)
    assert {type(value) for each in found for value in each.values()} == {str}


def test_names_are_searched_for_once_and_not_for_each_of_many_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the kubelet's socket leaves them out: each search would go through the whole message."""
    searches: list[int] = []
    search = pod_resources._text

    def counted(message: bytes, number: int) -> str:
        searches.append(number)
        return search(message, number)

    monkeypatch.setattr(pod_resources, "_text", counted)
    devices = field(2, b"GPU-1") * 1000
    found = list(read_pods(field(1, field(3, field(2, devices)))))
    assert len(found) == 1000
    assert len(searches) == 4, "pod, namespace, container and resource"
