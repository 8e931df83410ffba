"""The image that the real recipe gives: what its documents say, and that its gates would have failed."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from provisioner.image.assembly.build import BuildRequest, Built
from provisioner.image.base import Base
from provisioner.image.finished import store
from provisioner.image.gates.allowed import reasons
from provisioner.image.gates.documents.described import describe_image
from provisioner.image.gates.documents.sizes import SizeReport, decode_sizes
from provisioner.image.gates.libraries import check_libraries
from provisioner.image.gates.modules import (
    asked_for,
    check_firmware,
    check_modules,
    check_symbols,
    probe_modules,
    read_modules,
)
from provisioner.image.gates.privileges import check_privileges
from provisioner.image.gates.read.kernel_image import read_exports, read_release
from provisioner.image.gates.read.tree import Tree, read_tree
from provisioner.image.inputs import base_fingerprint
from provisioner.image.tools.foreign import find_foreign
from tests.image.gates.samples import told
from tests.image.gates.test_documents import must_be_spdx


@pytest.fixture(scope="module")
def documents(built: Built) -> dict[str, bytes]:
    """By name, from the store."""
    parts = store.part_files(built.folder)
    names = [name for name in parts if name.startswith("document.")]
    return {name.removeprefix("document."): parts[name].read_bytes() for name in names}


@pytest.fixture(scope="module")
def sizes(documents: dict[str, bytes]) -> SizeReport:
    return decode_sizes(documents["sizes"])


@pytest.fixture(scope="module")
def base(request_of_tests: BuildRequest, built: Built) -> Base:
    return Base(request_of_tests.cache / "base" / base_fingerprint(request_of_tests.recipe, request_of_tests.choices))


@pytest.fixture(scope="module")
def tree(base: Base) -> Tree:
    return read_tree(base.root)


def test_the_bill_of_materials_names_packages_programs_and_what_is_linked_into_them(
    built: Built, documents: dict[str, bytes]
) -> None:
    document = json.loads(documents["sbom"])
    must_be_spdx(document)
    found = {each["name"]: each for each in document["packages"]}
    for name, file in built.manifest.files().items():
        if not name.startswith("document."):
            assert found[name]["checksums"] == [{"algorithm": "SHA256", "checksumValue": file.sha256}]
    assert {"runc", "systemd", "libc6", "kubelet", "stdlib", "k8s.io/klog/v2", "provisioner", "busybox-static"} <= set(
        found
    )
    assert found["kubelet"]["versionInfo"] == built.manifest.versions["kubelet"]
    assert found["runc"]["versionInfo"] == built.manifest.versions["runc"]
    assert "perl-base" not in found, "it was installed, and nothing of it is in the image"


def test_each_package_of_the_image_has_its_licence(documents: dict[str, bytes]) -> None:
    unpacked = subprocess.run(["zstd", "-dcq"], input=documents["licences"], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        names = set(archive.getnames())
    packages = [each for each in json.loads(documents["sbom"])["packages"] if each["SPDXID"].startswith("SPDXRef-deb-")]
    assert len(packages) > 100
    assert [each["name"] for each in packages if f"licences/{each['name']}/copyright" not in names] == []
    assert {"licences/common/GPL-2", "licences/linux-image-amd64/copyright"} - names <= {
        "licences/linux-image-amd64/copyright"
    }


def test_sizes_add_up_to_the_layers(built: Built, sizes: SizeReport) -> None:
    for layer in built.manifest.layers:
        inside = sum(each.packed_bytes for each in sizes.components if each.layer == layer.name)
        assert inside <= layer.file.size_bytes
        # What is missing is names, modes and the fragments' table; in a layer of a few files that is more of it.
        assert inside >= 0.97 * layer.file.size_bytes - 30_000, layer.name
    assert sizes.root_bytes == sum(layer.file.size_bytes for layer in built.manifest.layers)
    purposes = {each.name: each.purpose for each in sizes.components}
    assert purposes["containerd"] != purposes["libc6"]
    assert "overlay" in sizes.modules


def test_the_image_can_be_described_from_its_store(
    built: Built, request_of_tests: BuildRequest, sizes: SizeReport
) -> None:
    assert describe_image(built.folder, request_of_tests.key.public).sizes == sizes


def test_without_the_recipes_reasons_the_same_image_fails(request_of_tests: BuildRequest, tree: Tree) -> None:
    """The gates look: what the recipe allows is what they find."""
    rules = request_of_tests.recipe.gates
    allowed = reasons(rules.allow_setuid)
    assert told(check_privileges(tree, allowed, reasons(rules.allow_world_writable))) == []
    found = told(check_privileges(tree, {}, {}))
    assert ("/usr/bin/mount", "mode 4755") in found
    assert ("/tmp", "folder of mode 1777") in found
    modules, unreadable = read_modules(tree)
    assert unreadable == []
    assert told(check_firmware(tree, modules, reasons(rules.allow_missing_firmware))) == []
    assert told(check_firmware(tree, modules, {})) != []


def test_a_program_without_its_library_is_found_in_the_real_root(tree: Tree) -> None:
    assert told(check_libraries(tree, "x86_64", {})) == []
    libraries = [path for path in tree.entries if path.rpartition("/")[2].startswith("libcrypto.so")]
    without = dataclasses.replace(
        tree, entries={path: each for path, each in tree.entries.items() if path not in libraries}
    )
    found = told(check_libraries(without, "x86_64", {}))
    assert len(found) > 3
    assert all("libcrypto.so" in observed for _, observed in found)


def test_the_real_modprobe_says_what_would_load_and_what_would_not(base: Base, tree: Tree) -> None:
    release, foreign = base.versions["kernel"], find_foreign("x86_64")
    names = asked_for(tree, release, ["mlx5_core", "overlay"])
    assert "crc32c" in names
    good = probe_modules(base.root, release, names, foreign)
    assert any(path.endswith("/mlx5_core.ko") for path in good.loads)
    assert told(check_modules(tree, release, good)) == []
    bad = probe_modules(base.root, release, ["overlay", "no_such_module"], foreign)
    assert ["no_such_module" in error for error in bad.errors] == [True]


def test_every_symbol_of_every_module_is_the_kernels_or_another_modules(base: Base, tree: Tree) -> None:
    kernel = base.kernel.read_bytes()
    exports, (modules, _) = read_exports(kernel), read_modules(tree)
    assert read_release(kernel) == base.versions["kernel"]
    assert exports is not None
    assert len(exports) > 5000
    assert told(check_symbols(modules, exports, {})) == []
    symbol = "alloc_etherdev_mqs"
    altered = {**exports, symbol: 1}
    assert {observed.partition(" with")[0] for _, observed in told(check_symbols(modules, altered, {}))} == {
        f"takes {symbol}"
    }
    del altered[symbol]
    assert len(told(check_symbols(modules, altered, {}))) > 3


def test_a_base_keeps_what_its_packages_said(base: Base) -> None:
    packages = {each.name: each for each in base.records.packages}
    assert packages["busybox-static"].unpacked_for == "stage1"
    assert [each.unpacked_for for name, each in packages.items() if name.startswith("linux-image")] == ["kernel"]
    assert all(each.licence_files for each in packages.values())
    assert not Path(base.root, "usr/share/doc").exists()
