"""All gates over a made-up image, packed by mksquashfs. Its modprobe is a fake one, which finds everything."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import provisioner
from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.manifest import FileDigest
from provisioner.image.finished.store import measure
from provisioner.image.gates.documents.sizes import ComponentSize, decode_sizes, encode_sizes
from provisioner.image.gates.failure import GateFailure, GatesFailed
from provisioner.image.gates.modules import FOLDER, ModprobeOutput
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.records import Records
from provisioner.image.gates.request import GateRequest
from provisioner.image.gates.run import run_gates
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.tables import RecipeGroup
from tests.image.gates.samples import EPOCH, RELEASE, RULES, elf, go_program, kernel, module, tree_of
from tests.tools import installed

OWN = "usr/lib/python3/dist-packages/provisioner/__init__.py"
BASE = {
    "usr/bin/tool": elf(("libone.so",)),
    "usr/lib/libone.so": elf(),
    f"{FOLDER}{RELEASE}/kernel/a.ko": module(imports={"printk": 1}),
    f"{FOLDER}{RELEASE}/modules.dep": "kernel/a.ko:\n",
    "etc/machine-id": "",
    "etc/shadow": "root:*:20454::::::\n",
}
SITE = {
    "usr/bin/kubelet": go_program(["mod\tk8s.io/kubernetes\tv1.36.3\t"]),
    "etc/site": "x" * 3000,
    OWN: "AGENT = 1\n",
}
PACKAGE = InstalledPackage(
    name="one", version="1-1", architecture="amd64", source="one", source_version="1-1",
    licence_files=("aa" * 32,), files=("usr/bin/tool", "usr/lib/libone.so"),
)  # fmt: skip
LINUX = InstalledPackage(
    name="linux", version="6", architecture="amd64", source="linux", source_version="6",
    licence_files=("aa" * 32,), files=(f"{FOLDER}{RELEASE}/kernel/a.ko",), unpacked_for="kernel",
)  # fmt: skip


def fake_probe(root: Path, release: str, names: Iterable[str], foreign: ForeignPrograms) -> ModprobeOutput:
    return ModprobeOutput(loads=(f"{FOLDER}{release}/kernel/a.ko",))


def stage1_with(folder: Path, content: bytes) -> Path:
    packed = subprocess.run(["zstd", "-qc"], input=content, stdout=subprocess.PIPE, check=True).stdout
    (folder / "stage1.img").write_bytes(packed)
    return folder / "stage1.img"


@pytest.fixture
def request_of_image(tmp_path: Path) -> GateRequest:
    layers = {"base": tmp_path / "base", "site": tmp_path / "site"}
    tree_of(layers["base"], BASE)
    tree_of(layers["site"], SITE)
    root, packed = tmp_path / "root", {}
    for name, tree in layers.items():
        shutil.copytree(tree, root, dirs_exist_ok=True)
        packed[name] = tmp_path / f"{name}.squashfs"
        command = [installed("mksquashfs"), tree, packed[name], "-quiet", "-no-progress", "-comp", "zstd"]
        subprocess.run([*command, "-all-time", str(EPOCH), "-mkfs-time", str(EPOCH)], check=True)
    (tmp_path / "vmlinuz").write_bytes(kernel({"printk": 1}))
    files = {f"layer.{name}": measure(file) for name, file in packed.items()}
    return GateRequest(
        recipe="made-up",
        distribution="debian-13",
        architecture="x86_64",
        source_date_epoch=EPOCH,
        root=root,
        packed=packed,
        kernel=tmp_path / "vmlinuz",
        stage1=stage1_with(tmp_path, b"070701 and so on"),
        files=files | {"kernel": measure(tmp_path / "vmlinuz"), "stage1": FileDigest("22" * 32, 1000)},
        versions={"kernel": RELEASE},
        records=Records((LINUX, PACKAGE), {"aa" * 32: "GPL\n"}),
        rules=dataclasses.replace(RULES, needed_modules=(RecipeGroup("all boot with it", ("a",)),)),
        foreign=ForeignPrograms("x86_64"),
        purposes={"one": "the tool"},
    )


def test_a_good_image_passes_and_is_described(request_of_image: GateRequest) -> None:
    report = run_gates(request_of_image, fake_probe)
    assert sorted(report.documents) == ["licences", "sbom", "sizes"]
    sizes = decode_sizes(report.documents["sizes"])
    found = {(each.layer, each.name): each for each in sizes.components}
    assert sorted(found) == [
        ("base", "linux"),
        ("base", "one"),
        ("base", "recipe"),
        ("site", "k8s.io/kubernetes"),
        ("site", "provisioner"),
        ("site", "recipe"),
    ]
    assert (found["base", "one"].version, found["base", "one"].purpose, found["base", "one"].files) == (
        "1-1",
        "the tool",
        2,
    )
    assert found["site", "k8s.io/kubernetes"].version == "v1.36.3"
    assert found["site", "provisioner"].version == provisioner.__version__
    assert found["base", "recipe"].version == ""
    assert sizes.modules == {"a": len(BASE[f"{FOLDER}{RELEASE}/kernel/a.ko"])}
    document = json.loads(report.documents["sbom"])
    relations = {(each["spdxElementId"], each["relatedSpdxElement"]) for each in document["relationships"]}
    assert ("SPDXRef-part-layer.base", "SPDXRef-deb-one-amd64") in relations
    assert ("SPDXRef-part-kernel", "SPDXRef-deb-linux-amd64") in relations
    own = next(each for each in document["packages"] if each["name"] == "provisioner")
    assert (own["versionInfo"], own["licenseDeclared"]) == (provisioner.__version__, "Apache-2.0")
    assert ("SPDXRef-part-layer.site", own["SPDXID"]) in relations
    kubelet = next(each["SPDXID"] for each in document["packages"] if each["name"] == "kubelet")
    assert ("SPDXRef-part-layer.site", kubelet) in relations
    assert run_gates(request_of_image, fake_probe) == report


def failures(request: GateRequest, probe: ModprobeOutput | None = None) -> list[GateFailure]:
    with pytest.raises(GatesFailed) as caught:
        run_gates(request, fake_probe if probe is None else lambda *_: probe)
    return list(caught.value.failures)


def test_all_failures_are_told_at_once_with_what_is_largest(request_of_image: GateRequest) -> None:
    root = request_of_image.root
    tree_of(
        root,
        {"usr/bin/su": "", "usr/share/key.pem": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n", "tmp/x": "x"},
        modes={"usr/bin/su": 0o4755},
    )
    (root / "usr/lib/libone.so").unlink()
    small = dataclasses.replace(
        request_of_image, rules=dataclasses.replace(RULES, root_budget_bytes=1000, stage1_budget_bytes=10)
    )
    with pytest.raises(GatesFailed) as caught:
        run_gates(small, fake_probe)
    assert [each.gate for each in caught.value.failures] == [
        "leftovers",
        "libraries",
        "secrets",
        "set-uid",
        "sizes",
        "sizes",
    ]
    words = str(caught.value)
    for told in (
        "image 'made-up' not built: 6 failures",
        "/usr/bin/su",
        "needs libone.so",
        "private key",
        "/tmp/x",
        "stage-1",
    ):
        assert told in words
    layers = next(each for each in caught.value.failures if each.object == "layers")
    assert "largest: layer.base 0.0 MB" in layers.observed
    assert "one 0.0 MB" in layers.observed
    for each in caught.value.failures:
        for words_of in ("observed  ", "expected  ", "remedy    "):
            assert words_of in each.render()


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ({"rules": dataclasses.replace(RULES, needed_files=(RecipeGroup("it", ("usr/bin/nvidia-smi",)),))}, "paths"),
        ({"rules": dataclasses.replace(RULES, forbid=(RecipeGroup("no caches", ("etc/site",)),))}, "paths"),
        ({"rules": dataclasses.replace(RULES, agree=(RecipeGroup("one", ("kernel", "driver-kernel")),)),
          "versions": {"kernel": RELEASE, "driver-kernel": "6"}}, "versions"),
        ({"versions": {"kernel": "6.12.0-other"}}, "versions"),
        ({"records": Records()}, "licences"),
        ({"architecture": "arm64"}, "libraries"),
        ({"source_date_epoch": EPOCH - 1}, "times"),
    ],
)  # fmt: skip
def test_each_gate_is_asked(request_of_image: GateRequest, change: dict[str, object], gate: str) -> None:
    assert gate in {each.gate for each in failures(dataclasses.replace(request_of_image, **change))}  # type: ignore[arg-type]


def test_a_secret_in_stage_1_fails_the_build(request_of_image: GateRequest, tmp_path: Path) -> None:
    stage1_with(tmp_path, b"070701\0key\0untrusted comment: secret key\nRWRCSwAAAAA\n")
    assert [(each.gate, each.object) for each in failures(request_of_image)] == [("secrets", "stage-1")]
    request_of_image.stage1.write_bytes(b"070701")
    with pytest.raises(Refused, match="cannot be unpacked"):
        run_gates(request_of_image, fake_probe)


def test_modules_that_do_not_load_fail_the_build(request_of_image: GateRequest) -> None:
    assert [each.gate for each in failures(request_of_image, ModprobeOutput(errors=("Module a not found",)))] == [
        "modules"
    ]
    request_of_image.kernel.write_bytes(kernel({"printk": 2}))
    assert [each.gate for each in failures(request_of_image)] == ["symbols"]


def test_a_known_vulnerability_fails_the_build_and_one_without_a_fix_is_told(
    request_of_image: GateRequest, tmp_path: Path
) -> None:
    affected = {"package": {"ecosystem": "Debian:13", "name": "one"}, "versions": ["1-1"]}
    fixed = affected | {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1-2"}]}]}
    file = tmp_path / "list.json"
    given = dataclasses.replace(request_of_image, vulnerabilities=file)
    file.write_text(json.dumps({"id": "CVE-2026-1", "affected": [fixed]}))
    assert [each.object for each in failures(given)] == ["one 1-1 in one"]
    harmless = {"id": "CVE-2026-2", "severity": [{"type": "X", "score": "negligible"}], "affected": [affected]}
    file.write_text(json.dumps([{"id": "CVE-2026-1", "affected": [affected]}, harmless]))
    assert run_gates(given, fake_probe).lines[-1] == "known vulnerabilities without a fix: CVE-2026-1"
    file.write_text(json.dumps([{"id": f"CVE-2026-{number}", "affected": [affected]} for number in range(1, 8)]))
    assert (
        run_gates(given, fake_probe)
        .lines[-1]
        .endswith(": CVE-2026-1, CVE-2026-2, CVE-2026-3, CVE-2026-4, CVE-2026-5 and 2 more")
    )
    file.write_text(json.dumps([{"id": f"CVE-2026-{number}", "affected": [affected]} for number in range(1, 6)]))
    assert run_gates(given, fake_probe).lines[-1].endswith("CVE-2026-5")


def test_the_difference_to_the_last_build_is_told(request_of_image: GateRequest) -> None:
    report = decode_sizes(run_gates(request_of_image, fake_probe).documents["sizes"])
    before = dataclasses.replace(
        report,
        parts={**report.parts, "layer.base": report.parts["layer.base"] + 2_000_000},
        components=(*report.components, ComponentSize(layer="base", name="perl", packed_bytes=2_000_000)),
    )
    lines = run_gates(dataclasses.replace(request_of_image, previous=encode_sizes(before)), fake_probe).lines
    assert lines[-1] == "since the last build: layers -2.0 MB (perl -2.0 MB)"
    lines = run_gates(dataclasses.replace(request_of_image, previous=b"{"), fake_probe).lines
    assert lines[-1].startswith("not compared with the last build: ")


def test_many_failures_of_one_gate_are_told_in_part() -> None:
    error = GatesFailed("a", [GateFailure("secrets", f"/{number:03}", "x", "y", "z") for number in range(60)])
    assert "60 failures in secrets" in str(error)
    assert "/049" in str(error)
    assert "/050" not in str(error)
    assert "secrets: 10 more" in str(error)
    assert len(error.failures) == 60
