"""Another image of the same content, in a second: its uppermost layer has a note of its own, and all else is shared.

So a server that moves to it fetches that layer alone. An image that is not in layers differs by a kernel argument.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from provisioner.image.finished import store
from provisioner.image.finished.manifest import MANIFEST, Layer, decode
from provisioner.image.finished.sign import SecretKey
from provisioner.image.tools.command import run

NOTE: Final = "lab.note"
NOTE_FILE: Final = Path("etc/provisioner/lab-note")
_SITE: Final = "site"


def make_another_image(
    folder: Path, image_store: Path, key: SecretKey, note: str, arguments: tuple[str, ...] = ()
) -> Path:
    """The image in `folder` with a note in its site's layer and `arguments` on its command line, signed, in the store.

    Raises: NeedsHuman if squashfs-tools are missing.
    """
    manifest, files = decode((folder / MANIFEST).read_bytes()), store.part_files(folder)
    with tempfile.TemporaryDirectory(prefix=".another-", dir=image_store) as name:
        if manifest.layers[-1].name == _SITE:
            packed = _noted(files[f"layer.{_SITE}"], note, Path(name))
            files[f"layer.{_SITE}"] = packed
            layers = (*manifest.layers[:-1], Layer(_SITE, store.measure(packed)))
            manifest = replace(manifest, layers=layers)
        else:
            kept = tuple(word for word in manifest.kernel_arguments if not word.startswith(f"{NOTE}="))
            manifest = replace(manifest, kernel_arguments=(*kept, f"{NOTE}={note}"))
        text = replace(manifest, kernel_arguments=(*manifest.kernel_arguments, *arguments)).encode()
        return store.put_image(image_store, text, key.sign(text), files)


def _noted(squashfs: Path, note: str, work: Path) -> Path:
    tree, packed = work / "tree", work / "site.squashfs"
    hint = "check the free space of the image store"
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", str(tree), str(squashfs)], hint=hint)
    file = tree / NOTE_FILE
    file.parent.mkdir(mode=0o755, exist_ok=True)
    file.write_text(f"{note}\n")
    run(["mksquashfs", str(tree), str(packed), "-quiet", "-no-progress", "-no-xattrs", "-comp", "zstd"], hint=hint)
    return packed
