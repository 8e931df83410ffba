"""What containerd's folder holds after it has imported and unpacked the pause image, written without running it.

Importing at boot costs a server 6 to 13 s of a CPU; importing during the build needs overlayfs and a daemon there, and
writes its time and a random number into the image. The databases' layout has been the same since containerd 1.2 (schema
version 1, database version 3); a test has the image's own containerd read the state and list the image.

Source: github.com/containerd/containerd, metadata/buckets.go and snapshots/storage/bolt.go.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path

from provisioner.image.containerd.bolt import Bucket, encode
from provisioner.image.containerd.pause import REFERENCE, PauseImage

_CONTENT = Path("io.containerd.content.v1.content")
_METADATA = Path("io.containerd.metadata.v1.bolt")
_OVERLAYFS = Path("io.containerd.snapshotter.v1.overlayfs")
_KIND_COMMITTED = 3
_SECONDS_FROM_YEAR_1_TO_1970 = 62135596800


def write_state(image: PauseImage, epoch: int, folder: Path) -> None:
    """Fill `folder`, which becomes /var/lib/containerd at boot. `epoch`: the time of all entries, in Unix seconds."""
    time = go_time(epoch)
    blobs = folder / _CONTENT / "blobs/sha256"
    blobs.mkdir(parents=True)
    (folder / _CONTENT / "ingest").mkdir()
    for blob in (image.layer, image.config, image.manifest):
        file = blobs / blob.digest.removeprefix("sha256:")
        file.write_bytes(blob.content)
        file.chmod(0o444)
    snapshot = folder / _OVERLAYFS / "snapshots/1"
    (snapshot / "fs").mkdir(parents=True)
    (snapshot / "work").mkdir(mode=0o711)
    for unpacked in image.files:
        file = snapshot / "fs" / unpacked.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(unpacked.content)
        file.chmod(unpacked.mode)
    (folder / _METADATA).mkdir(mode=0o711)
    (folder / _METADATA / "meta.db").write_bytes(encode(_metadata(image, time)))
    (folder / _OVERLAYFS / "metadata.db").write_bytes(encode(_snapshotter(image, time)))
    (folder / _OVERLAYFS / "metadata.db").chmod(0o600)
    for private in (folder, folder / _OVERLAYFS, folder / _OVERLAYFS / "snapshots", snapshot):
        private.chmod(0o700)


def go_time(epoch: int) -> bytes:
    """Go's time.Time.MarshalBinary: version, seconds since year 1, nanoseconds, and -1 for UTC."""
    seconds = int(datetime.fromtimestamp(epoch, UTC).timestamp()) + _SECONDS_FROM_YEAR_1_TO_1970
    return struct.pack(">Bqih", 1, seconds, 0, -1)


def varint(value: int) -> bytes:
    """Go's binary.PutVarint: zigzag, then seven bits a byte."""
    number = value * 2 if value >= 0 else -value * 2 - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _snapshot_name(image: PauseImage) -> str:
    return f"k8s.io/1/{image.diff_id}"


def _metadata(image: PauseImage, time: bytes) -> Bucket:
    times: dict[str, bytes | Bucket] = {"createdat": time, "updatedat": time}
    # The labels are what keeps containerd's garbage collector from taking the blobs.
    references = {
        image.layer: {"containerd.io/uncompressed": image.diff_id},
        image.config: {"containerd.io/gc.ref.snapshot.overlayfs": image.diff_id},
        image.manifest: {
            "containerd.io/gc.ref.content.config": image.config.digest,
            "containerd.io/gc.ref.content.l.0": image.layer.digest,
        },
    }
    blobs = {
        blob.digest: Bucket({**times, "size": varint(len(blob.content)), "labels": _texts(labels)})
        for blob, labels in references.items()
    }
    target = Bucket(
        {
            "digest": image.manifest.digest.encode(),
            "mediatype": image.manifest.media_type.encode(),
            "size": varint(len(image.manifest.content)),
        }
    )
    # As the kubelet's side of containerd names and marks what it manages; pinned: the kubelet never removes it.
    labels = _texts({"io.cri-containerd.image": "managed", "io.cri-containerd.pinned": "pinned"})
    names = (REFERENCE, image.config.digest)
    images = {name: Bucket({**times, "labels": labels, "target": target}) for name in names}
    snapshot = Bucket({**times, "name": _snapshot_name(image).encode()})
    namespace = Bucket(
        {
            "content": Bucket({"blob": Bucket(blobs), "ingests": Bucket()}),
            "images": Bucket(images),
            "leases": Bucket(),
            "snapshots": Bucket({"overlayfs": Bucket({image.diff_id: snapshot}, sequence=1)}),
        }
    )
    return Bucket({"v1": Bucket({"k8s.io": namespace, "version": varint(3)})})


def _snapshotter(image: PauseImage, time: bytes) -> Bucket:
    # What containerd's own walk over the snapshot counts: its root, files and folders.
    paths = {str(each) for file in image.files for each in (Path(file.path), *Path(file.path).parents)} - {"."}
    snapshot = Bucket(
        {
            "createdat": time,
            "updatedat": time,
            "id": bytes([1]),  # an unsigned varint: the folder snapshots/1
            "inodes": varint(1 + len(paths)),
            "kind": bytes([_KIND_COMMITTED]),
            "size": varint(sum(-(-len(file.content) // 4096) * 4096 for file in image.files)),
        }
    )
    # The sequence is where containerd counts on: its next snapshot must not get the number of this one.
    snapshots = Bucket({_snapshot_name(image): snapshot}, sequence=1)
    return Bucket({"v1": Bucket({"parents": Bucket(), "snapshots": snapshots})})


def _texts(values: dict[str, str]) -> Bucket:
    return Bucket({name: value.encode() for name, value in values.items()})
