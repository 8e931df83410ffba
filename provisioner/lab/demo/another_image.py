"""Another image of the same content, in a second: it differs from the first by one kernel argument and its digest."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from provisioner.image.finished import store
from provisioner.image.finished.manifest import FILES, MANIFEST, SIGNATURE, decode, digest_of
from provisioner.image.finished.sign import SecretKey

NOTE: str = "lab.note"


def make_another_image(
    folder: Path, image_store: Path, key: SecretKey, note: str, arguments: tuple[str, ...] = ()
) -> Path:
    """The image in `folder` with `lab.note=<note>` and `arguments` on its command line, signed, in the store."""
    manifest = decode((folder / MANIFEST).read_bytes())
    kept = tuple(word for word in manifest.kernel_arguments if not word.startswith(f"{NOTE}="))
    text = replace(manifest, kernel_arguments=(*kept, f"{NOTE}={note}", *arguments)).encode()
    with tempfile.TemporaryDirectory(prefix=".another-", dir=image_store) as name:
        work = Path(name)
        (work / MANIFEST).write_bytes(text)
        (work / SIGNATURE).write_text(key.sign(text))
        for file in FILES.values():
            os.link(folder / file, work / file)
        return store.put(work, image_store, digest_of(text))
