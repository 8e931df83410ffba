"""Another image of the same content, for the demo and the journeys."""

from __future__ import annotations

from pathlib import Path

from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import FILES, MANIFEST, SIGNATURE, Manifest, decode, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.lab.demo.another_image import make_another_image


def _image(tmp_path: Path, key: SecretKey) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    for file in FILES.values():
        (work / file).write_text(file)
    files = {kind: store.measure(work / file) for kind, file in FILES.items()}
    text = Manifest(
        recipe="gpu-node",
        distribution="debian-13",
        architecture="x86_64",
        kernel=files["kernel"],
        stage1=files["stage1"],
        root=files["root"],
        kernel_arguments=("quiet",),
    ).encode()
    (work / MANIFEST).write_bytes(text)
    (work / SIGNATURE).write_text(key.sign(text))
    return store.put(work, tmp_path / "store", digest_of(text))


def test_it_is_whole_and_signed_and_differs_by_its_note_alone(tmp_path: Path) -> None:
    key = SecretKey.generate()
    first = _image(tmp_path, key)
    second = make_another_image(first, tmp_path / "store", key, "one")
    third = make_another_image(second, tmp_path / "store", key, "two")
    assert len({first.name, second.name, third.name}) == 3
    manifest = check_image(third, key.public, contents=True).manifest
    assert manifest.kernel_arguments == ("quiet", "lab.note=two")
    assert manifest.files() == decode((first / MANIFEST).read_bytes()).files()
    assert [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith(".")] == []
