"""A pause image that somebody else made, pinned by digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.image.containerd import archive as containerd_archive
from provisioner.image.containerd.archive import PinnedArchive, parse_pinned, read_archive
from provisioner.image.containerd.bolt import Bucket
from provisioner.image.containerd.state import write_state
from tests.image.bolt_files import decode

OCI = "application/vnd.oci.image"


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def tar_of(members: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o755
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class FakeArchive:
    """What `skopeo copy --all` would write: an index of images for two architectures, made of what a test wants."""

    def __init__(self, layer: bytes | None = None, *, compress: bool = True, **changed: Any) -> None:
        self.blobs: dict[str, bytes] = {}
        plain = layer if layer is not None else tar_of({"pause": b"program", "etc/passwd": b"root:x:0:0\n"})
        self.diff_id = digest_of(plain)
        packed = gzip.compress(plain, mtime=0) if compress else plain
        manifests = []
        for architecture in ("amd64", "arm64"):
            config = {
                "architecture": architecture,
                "os": "linux",
                "rootfs": {"type": "layers", "diff_ids": [changed.get("diff_id", self.diff_id)]},
            }
            manifest = {
                "schemaVersion": 2,
                "mediaType": f"{OCI}.manifest.v1+json",
                "config": self._add(f"{OCI}.config.v1+json", json.dumps(config).encode()),
                "layers": [self._add(f"{OCI}.layer.v1.tar+gzip", packed)] * changed.get("layers", 1),
            }
            described = self._add(f"{OCI}.manifest.v1+json", json.dumps(manifest).encode())
            manifests.append({**described, "platform": {"os": "linux", "architecture": architecture}})
        self.manifests = [str(each["digest"]) for each in manifests]
        index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": manifests}
        self.index = str(self._add(f"{OCI}.index.v1+json", json.dumps(index).encode())["digest"])

    def _add(self, media_type: str, content: bytes) -> dict[str, object]:
        self.blobs[digest_of(content)] = content
        return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}

    def write(self, folder: Path) -> Path:
        file = folder / "pause.tar"
        file.write_bytes(tar_of({f"blobs/{name.replace(':', '/')}": content for name, content in self.blobs.items()}))
        return file

    def pinned(self, folder: Path, digest: str | None = None) -> PinnedArchive:
        return PinnedArchive(self.write(folder), digest or self.index)


def test_the_image_of_the_architecture_is_found_through_the_pinned_index(tmp_path: Path) -> None:
    made = FakeArchive()
    image = read_archive(made.pinned(tmp_path), "arm64")
    assert image.manifest.digest == made.manifests[1]
    assert [(file.path, file.content) for file in image.files] == [
        ("pause", b"program"),
        ("etc/passwd", b"root:x:0:0\n"),
    ]
    assert image.diff_id == made.diff_id != image.layer.digest, "the layer is compressed"


def test_the_manifest_itself_may_be_pinned_and_the_layer_need_not_be_compressed(tmp_path: Path) -> None:
    made = FakeArchive(compress=False)
    image = read_archive(made.pinned(tmp_path, made.manifests[0]), "x86_64")
    assert image.diff_id == image.layer.digest


def test_containerds_state_holds_it_unpacked_under_our_name(tmp_path: Path) -> None:
    made = FakeArchive()
    image = read_archive(made.pinned(tmp_path), "x86_64")
    state = tmp_path / "state"
    state.mkdir()
    write_state(image, 0, state)
    unpacked = state / "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs"
    assert (unpacked / "pause").read_bytes() == b"program"
    assert (unpacked / "etc/passwd").exists()
    database = decode((state / "io.containerd.metadata.v1.bolt/meta.db").read_bytes())
    namespace = bucket(bucket(database, "v1"), "k8s.io")
    snapshots = bucket(bucket(namespace, "snapshots"), "overlayfs")
    assert list(snapshots.entries) == [made.diff_id], "containerd looks for a layer by its uncompressed content"
    labels = bucket(bucket(bucket(bucket(namespace, "content"), "blob"), image.layer.digest), "labels")
    assert labels.entries["containerd.io/uncompressed"] == made.diff_id.encode()


def bucket(parent: Bucket, name: str) -> Bucket:
    found = parent.entries[name]
    assert isinstance(found, Bucket)
    return found


def test_a_part_that_was_exchanged_is_refused(tmp_path: Path) -> None:
    made = FakeArchive()
    layer = next(name for name, content in made.blobs.items() if content[:2] == b"\x1f\x8b")
    made.blobs[layer] = gzip.compress(tar_of({"pause": b"another program"}), mtime=0)
    with pytest.raises(NeedsHuman, match=f"what is called {layer} has another content"):
        read_archive(made.pinned(tmp_path), "x86_64")


def test_a_layer_that_unpacks_to_another_content_than_its_configuration_says_is_refused(tmp_path: Path) -> None:
    made = FakeArchive(diff_id="sha256:" + "0" * 64)
    with pytest.raises(NeedsHuman, match="unpacks to another content"):
        read_archive(made.pinned(tmp_path), "x86_64")


@pytest.mark.parametrize("name", ["../../etc/shadow", "/etc/shadow", "etc/.wh.shadow"])
def test_a_file_outside_the_containers_root_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match="no plain file"):
        read_archive(FakeArchive(tar_of({name: b"x"})).pinned(tmp_path), "x86_64")


def link() -> tarfile.TarInfo:
    member = tarfile.TarInfo("pause")
    member.type, member.linkname = tarfile.SYMTYPE, "/usr/bin/kubelet"
    return member


def device() -> tarfile.TarInfo:
    member = tarfile.TarInfo("mem")
    member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 1, 1
    return member


@pytest.mark.parametrize("member", [link, device])
def test_links_and_devices_are_refused(member: Callable[[], tarfile.TarInfo], tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match="no plain file"):
        read_archive(FakeArchive(tar_of({"": member()})).pinned(tmp_path), "x86_64")


def test_a_layer_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    bomb = tar_of({"pause": bytes(containerd_archive.MOST_LAYER_BYTES + 1)})
    with pytest.raises(NeedsHuman, match=r"unpacks to more than 16777216 bytes"):
        read_archive(FakeArchive(bomb).pinned(tmp_path), "x86_64")


def test_more_than_one_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match="is no image of one layer"):
        read_archive(FakeArchive(layers=2).pinned(tmp_path), "x86_64")


def test_an_image_for_another_machine_is_refused(tmp_path: Path) -> None:
    made = FakeArchive()
    with pytest.raises(NeedsHuman, match="is for linux/amd64; give arm64's"):
        read_archive(made.pinned(tmp_path, made.manifests[0]), "arm64")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match=f"has no sha256:{'1' * 64}"):
        read_archive(FakeArchive().pinned(tmp_path, "sha256:" + "1" * 64), "x86_64")
    with pytest.raises(NotFound, match=r"pause archive \S+ does not exist"):
        read_archive(PinnedArchive(tmp_path / "absent", "sha256:" + "1" * 64), "x86_64")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(NeedsHuman, match="is not a tar archive"):
        read_archive(PinnedArchive(tmp_path / "text", "sha256:" + "1" * 64), "x86_64")


def test_an_archive_without_its_digest_is_not_taken() -> None:
    assert parse_pinned("a@b.tar@sha256:" + "a" * 64) == PinnedArchive(Path("a@b.tar"), "sha256:" + "a" * 64)
    for text in ("pause.tar", "pause.tar@sha256:abc", "@sha256:" + "a" * 64, "pause.tar@" + "a" * 64):
        with pytest.raises(NeedsHuman, match="is not pinned"):
            parse_pinned(text)
