from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import tarfile
from typing import Any

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.manifest import FileDigest
from provisioner.image.gates.documents.sbom import SbomContents, render_sbom
from provisioner.image.gates.documents.sizes import (
    ComponentSize,
    Growth,
    SizeReport,
    by_name,
    decode_sizes,
    encode_sizes,
    growth,
)
from provisioner.image.gates.licences import licence_archive
from provisioner.image.gates.packages.go_binary import GoBuild, GoModule
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.records import Records
from tests.golden_files import assert_golden
from tests.image.gates.samples import EPOCH

TEXTS = {"aa" * 32: "Apache-2.0\n", "bb" * 32: "GPL-2\n"}
PACKAGES = (
    InstalledPackage(
        name="linux-image-6.12", version="6.12-1", architecture="amd64", source="linux-signed-amd64",
        source_version="6.12+1", licence_files=("bb" * 32,), unpacked_for="kernel",
    ),
    InstalledPackage(
        name="libstdc++6", version="14.2.0-19", architecture="amd64", source="gcc-14", source_version="14.2.0-19",
        licence_files=("aa" * 32,),
    ),
    InstalledPackage(
        name="runc", version="1:1.1~rc1+ds1-2+b4", architecture="amd64", source="runc",
        source_version="1:1.1~rc1+ds1-2",
        licence_files=("aa" * 32,), built_using=("golang-1.24 1.24.4-1",),
    ),
)  # fmt: skip
KUBELET = GoBuild(
    "go1.26.8",
    "k8s.io/kubernetes/cmd/kubelet",
    GoModule("k8s.io/kubernetes", "v1.36.3", "h1:abc="),
    (GoModule("github.com/a/b", "v1.0.0+incompatible", "h1:def="),),
)
CONTENTS = SbomContents(
    recipe="gpu-node",
    distribution="debian-13",
    architecture="x86_64",
    epoch=EPOCH,
    version="0.1.0",
    parts={
        "kernel": FileDigest("11" * 32, 12),
        "stage1": FileDigest("22" * 32, 5),
        "layer.base": FileDigest("33" * 32, 118),
    },
    packages=PACKAGES,
    placed={
        "linux-image-6.12": ("kernel", "layer.base", "stage1"),
        "libstdc++6": ("layer.base",),
        "runc": ("layer.base",),
        "usr/bin/kubelet": ("layer.base",),
        "provisioner": ("layer.base",),
        "recipe": ("layer.base",),
    },
    programs={"usr/bin/kubelet": KUBELET, "usr/sbin/runc": GoBuild("go1.24.4", "runc", None, ())},
    program_digests={"usr/bin/kubelet": "44" * 32, "usr/sbin/runc": "55" * 32},
    owners={"usr/sbin/runc": "runc"},
)


def test_the_sbom_is_the_golden_one() -> None:
    assert_golden("image/sbom.spdx.json", render_sbom(CONTENTS).decode())


def must_be_spdx(document: dict[str, Any]) -> None:
    """What the JSON schema of SPDX 2.3 demands of what is used of it, and that references lead somewhere."""
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["dataLicense"] == "CC0-1.0"
    assert document["SPDXID"] == "SPDXRef-DOCUMENT"
    assert document["documentNamespace"].startswith("https://")
    assert "#" not in document["documentNamespace"]
    assert document["name"]
    created = document["creationInfo"]
    assert created["creators"]
    assert all(each.startswith(("Tool: ", "Organization: ", "Person: ")) for each in created["creators"])
    assert len(created["created"]) == len("2026-01-01T00:00:00Z")
    ids = [each["SPDXID"] for each in document["packages"]]
    assert len(set(ids)) == len(ids)
    purposes = {"APPLICATION", "FRAMEWORK", "LIBRARY", "CONTAINER", "OPERATING-SYSTEM", "DEVICE", "FIRMWARE", "SOURCE", "ARCHIVE", "FILE", "INSTALL", "OTHER"}  # fmt: skip  # noqa: E501
    for each in document["packages"]:
        assert each["name"]
        assert each["downloadLocation"] == "NOASSERTION"
        assert each["filesAnalyzed"] is False
        assert each["SPDXID"].removeprefix("SPDXRef-").replace("-", "").replace(".", "").isalnum()
        assert each["SPDXID"].isascii()
        assert each.get("primaryPackagePurpose", "OTHER") in purposes
        for reference in each.get("externalRefs", []):
            assert reference["referenceCategory"] == "PACKAGE-MANAGER"
            assert reference["referenceType"] == "purl"
            assert reference["referenceLocator"].startswith("pkg:")
            assert " " not in reference["referenceLocator"]
        for checksum in each.get("checksums", []):
            assert checksum["algorithm"] == "SHA256"
            assert len(bytes.fromhex(checksum["checksumValue"])) == 32
    kinds = {"DESCRIBES", "CONTAINS", "STATIC_LINK"}
    reached = {"SPDXRef-DOCUMENT"}
    for each in document["relationships"]:
        assert each["relationshipType"] in kinds
        assert each["spdxElementId"] in {*ids, "SPDXRef-DOCUMENT"}
        assert each["relatedSpdxElement"] in ids
        reached.add(each["relatedSpdxElement"])
    assert set(ids) <= reached, "nothing stands there without a relation to the image"


def test_the_sbom_is_of_the_form_that_spdx_demands() -> None:
    document = json.loads(render_sbom(CONTENTS))
    must_be_spdx(document)
    found = {each["name"]: each for each in document["packages"]}
    assert found["layer.base"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "33" * 32}]
    assert found["libstdc++6"]["externalRefs"][0]["referenceLocator"] == (
        "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64&distro=debian-13"
    )
    assert found["runc"]["versionInfo"] == "1:1.1~rc1+ds1-2+b4"
    assert found["github.com/a/b"]["externalRefs"][0]["referenceLocator"] == (
        "pkg:golang/github.com/a/b@v1.0.0%2Bincompatible"
    )


def test_the_same_image_has_the_same_sbom_and_another_one_another_name() -> None:
    assert render_sbom(CONTENTS) == render_sbom(
        dataclasses.replace(CONTENTS, parts=dict(reversed(CONTENTS.parts.items())))
    )
    other = dataclasses.replace(CONTENTS, parts={**CONTENTS.parts, "kernel": FileDigest("12" * 32, 12)})
    names = {json.loads(render_sbom(each))["documentNamespace"] for each in (CONTENTS, other)}
    assert len(names) == 2


@pytest.mark.programs
def test_licences_are_an_archive_of_each_text_once() -> None:
    records = Records(PACKAGES, TEXTS, {"GPL-2": "bb" * 32})
    packed = licence_archive(records, EPOCH)
    assert packed == licence_archive(records, EPOCH)
    unpacked = subprocess.run(["zstd", "-dcq"], input=packed, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        assert {member.mtime for member in archive} == {EPOCH}
        read = {}
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            read[member.name.removeprefix("licences/")] = (stream.read().decode(), member.issym())
    assert read == {
        "common/GPL-2": ("GPL-2\n", False),
        "libstdc++6/copyright": ("Apache-2.0\n", False),
        "linux-image-6.12/copyright": ("GPL-2\n", True),
        "runc/copyright": ("Apache-2.0\n", True),
    }


REPORT = SizeReport(
    recipe="gpu-node",
    distribution="debian-13",
    architecture="x86_64",
    parts={"kernel": 12, "stage1": 5, "layer.base": 118, "layer.site": 2, "document.sbom": 9},
    components=(
        ComponentSize(
            layer="base", name="runc", version="1.1", purpose="the node", files=1, unpacked_bytes=9, packed_bytes=4
        ),
        ComponentSize(layer="site", name="runc", files=1, unpacked_bytes=2, packed_bytes=1),
    ),
    modules={"nvidia": 7},
)


def test_a_size_report_is_read_as_it_was_written() -> None:
    assert decode_sizes(encode_sizes(REPORT)) == REPORT
    assert REPORT.root_bytes == 120
    assert by_name(REPORT.components) == {"runc": 5}
    assert dataclasses.replace(REPORT, parts={"root": 7, "stage1": 5}).root_bytes == 7


def test_growth_tells_the_largest_difference_first() -> None:
    before, after = {"a": 5, "b": 5, "c": 1, "same": 3}, {"a": 6, "b": 1, "d": 2, "same": 3}
    assert growth(before, after) == [Growth("b", 5, 1), Growth("d", 0, 2), Growth("a", 5, 6), Growth("c", 1, 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"parts": {"kernel": "12"}},
        {"parts": {"kernel": -1}},
        {"parts": {"kernel": True}},
        {"parts": 7},
        {"components": [{"layer": "base"}]},
        {"components": [{"layer": 7, "name": "x"}]},
        {"components": [{"layer": "base", "name": "x", "more": 1}]},
        {"modules": {"a": 1.5}},
        {"recipe": None},
        {"another": 1},
    ],
)
def test_a_report_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        decode_sizes(json.dumps({**json.loads(encode_sizes(REPORT)), **change}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        decode_sizes(data)
