"""The initramfs of the next kernel: the image's stage-1, and behind it an archive with manifest, root and request key.

The next stage-1 finds the root as /staged/root.squashfs and mounts it where it lies. Only small things stand behind the
root, so that it is fetched into its place and a fetch that was cut goes on there. The request key is the one with which
the next system will ask to join: who has it was started by this system.

Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

_ROOT = "staged/root.squashfs"


def before_root(stage1_bytes: int, manifest: bytes, signature: bytes, root_bytes: int) -> bytes:
    """What stands between the image's stage-1 and the root's own bytes."""
    padding = b"\0" * (-stage1_bytes % 4)  # each archive begins at a multiple of four
    return b"".join(
        (
            padding,
            _head(1, "staged", 0o040700, 0),
            _head(2, "staged/manifest", 0o100600, len(manifest)),
            _padded(manifest),
            _head(3, "staged/manifest.sig", 0o100600, len(signature)),
            _padded(signature),
            _head(4, _ROOT, 0o100600, root_bytes),
        )
    )


def after_root(root_bytes: int, request_key: str) -> bytes:
    """What stands behind the root's bytes. `request_key`: as `boot_facts.request_key`."""
    key = request_key.encode() + b"\n"
    return b"".join(
        (
            b"\0" * (-root_bytes % 4),
            _head(5, "staged/request-key", 0o100600, len(key)),
            _padded(key),
            _head(0, "TRAILER!!!", 0, 0),
        )
    )


def _head(inode: int, name: str, mode: int, size: int) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if mode & 0o040000 else 1
    fields = (inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(encoded), 0)
    return _padded(b"070701" + b"".join(b"%08X" % value for value in fields) + encoded)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
