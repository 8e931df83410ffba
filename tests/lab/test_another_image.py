"""Another image of the same content, for the demo and the journeys."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.demo.another_image import NOTE_FILE, make_another_image
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import MANIFEST, decode
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import part_files
from tests.image.made_images import LAYERED, write_layered, write_of_format_1
from tests.tools import need_root


def _site(tmp_path: Path) -> bytes:
    tree, packed = tmp_path / "site/etc/provisioner", tmp_path / "site.squashfs"
    tree.mkdir(parents=True)
    (tree / "image.pub").write_text("key")
    (tree / "image.pub").chmod(0o640)
    subprocess.run(["mksquashfs", tmp_path / "site", packed, "-quiet", "-no-progress"], check=True)
    return packed.read_bytes()


def test_its_site_differs_by_a_note_and_all_other_parts_are_shared(tmp_path: Path) -> None:
    need_root("keep the owners of a layer's files")
    key, store = SecretKey.generate(), tmp_path / "store"
    first = write_layered(store, key, {**LAYERED, "layer.site": _site(tmp_path)})
    kept = set((store / "parts").iterdir())
    second = make_another_image(first, store, key, "one")
    third = make_another_image(second, store, key, "two", ("mem=800M",))
    assert len({first.name, second.name, third.name}) == 3
    manifest = check_image(third, key.public).manifest
    assert manifest.kernel_arguments == ("quiet", "mem=800M")
    before = decode((first / MANIFEST).read_bytes()).files()
    assert [name for name, file in manifest.files().items() if file != before[name]] == ["layer.site"]
    new = {part_files(image)["layer.site"] for image in (second, third)}
    assert set((store / "parts").iterdir()) - kept == new, "a server that moves to it fetches that layer alone"
    subprocess.run(["unsquashfs", "-quiet", "-dest", tmp_path / "out", part_files(third)["layer.site"]], check=True)
    assert (tmp_path / "out" / NOTE_FILE).read_text() == "two\n"
    assert (tmp_path / "out/etc/provisioner/image.pub").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in store.iterdir() if path.name.startswith(".")] == [".lock"]


def test_of_an_image_that_is_not_in_layers_it_differs_by_a_kernel_argument_alone(tmp_path: Path) -> None:
    key = SecretKey.generate()
    first = write_of_format_1(tmp_path / "store", key)
    second = make_another_image(first, tmp_path / "store", key, "one")
    third = make_another_image(second, tmp_path / "store", key, "two")
    assert len({first.name, second.name, third.name}) == 3
    manifest = check_image(third, key.public).manifest
    assert manifest.kernel_arguments == ("quiet", "lab.note=two")
    assert manifest.files() == decode((first / MANIFEST).read_bytes()).files()
