"""The initramfs of the next kernel: the image's stage-1, behind it an archive with manifest, layers and request key.

The next stage-1 finds each layer below /staged, by the name that it has in a source, and mounts it where it lies. It is
written from the beginning to the end, so that each layer comes into its place, and a fetch that was cut goes on there.
The request key is the one with which the next system will ask to join: who has it was started by this system.

Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations


def before_layers(stage1_bytes: int, manifest: bytes, signature: bytes) -> bytes:
    """What stands behind the image's stage-1."""
    padding = b"\0" * (-stage1_bytes % 4)  # each archive begins at a multiple of four
    return b"".join(
        (
            padding,
            _head("staged", 0o040700, 0),
            _head("staged/manifest", 0o100600, len(manifest)),
            _padded(manifest),
            _head("staged/manifest.sig", 0o100600, len(signature)),
            _padded(signature),
        )
    )


def before_layer(name: str, size_bytes: int) -> bytes:
    """What stands before a layer's own bytes."""
    return _head(f"staged/{name}", 0o100600, size_bytes)


def after_layer(size_bytes: int) -> bytes:
    """What stands behind them."""
    return b"\0" * (-size_bytes % 4)


def after_layers(request_key: str) -> bytes:
    """The end. `request_key`: as `boot_facts.request_key`."""
    key = request_key.encode() + b"\n"
    return _head("staged/request-key", 0o100600, len(key)) + _padded(key) + _head("TRAILER!!!", 0, 0)


def _head(name: str, mode: int, size: int) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if mode & 0o040000 else 1
    # Numbers of inodes tell hard links apart, of which there are none.
    fields = (0, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(encoded), 0)
    return _padded(b"070701" + b"".join(b"%08X" % value for value in fields) + encoded)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
