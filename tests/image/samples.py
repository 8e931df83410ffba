"""Made-up values that several tests of images share."""

from __future__ import annotations

from pathlib import Path

from provisioner.image.finished.manifest import FileDigest, Layer, Manifest
from provisioner.image.recipe import RootRecipe

IMAGES = Path(__file__).parents[2] / "images"
RECIPE = IMAGES / "gpu-node"
CPU = IMAGES / "cpu-node"
DPU = IMAGES / "dpu"
NODE = IMAGES / "node"
"""What all extend."""
VARIANTS = ("cpu-node", "dpu", "gpu-hgx", "gpu-hgx-b200", "gpu-mnnvl", "gpu-node")

MANIFEST = Manifest(
    recipe="gpu-node",
    distribution="debian-13",
    architecture="x86_64",
    kernel=FileDigest("11" * 32, 12171200),
    stage1=FileDigest("22" * 32, 5400721),
    layers=(
        Layer("base", FileDigest("33" * 32, 118400000)),
        Layer("driver", FileDigest("44" * 32, 101000000)),
        Layer("kubelet", FileDigest("55" * 32, 18400000)),
        Layer("site", FileDigest("66" * 32, 1200000)),
    ),
    documents={"sizes": FileDigest("88" * 32, 20000), "sbom": FileDigest("77" * 32, 900000)},
    kernel_arguments=("quiet", "loglevel=4"),
    versions={"kernel": "6.12.117+deb13-amd64", "kubelet": "v1.36.3", "containerd": "1.7.24~ds1-6"},
)
MANIFEST_OF_FORMAT_1 = Manifest(
    recipe="gpu-node",
    distribution="debian-13",
    architecture="x86_64",
    kernel=FileDigest("11" * 32, 12171200),
    stage1=FileDigest("22" * 32, 5400721),
    layers=(Layer("root", FileDigest("33" * 32, 118400000)),),
    kernel_arguments=("quiet", "loglevel=4"),
    versions={"kernel": "6.12.117+deb13-amd64", "kubelet": "v1.36.3", "containerd": "1.7.24~ds1-6"},
    format=1,
)


def enabled_units(root: RootRecipe) -> set[tuple[str, str]]:
    """Each target with each unit that it starts."""
    return {(target, unit) for target, group in root.enable for unit in group.names}
