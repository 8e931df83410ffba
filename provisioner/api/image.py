"""Image: kernel, stage-1 and root of a system that lives in RAM; immutable, named by digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import Column, Kind, Rule, described
from provisioner.api.server import Architecture
from provisioner.api.values import DIGEST_PATTERN


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One file of an image."""

    path: str = described(
        "Path below the image store, such as sha256-9f3c…/root.squashfs.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        max_length=253,
        rules=(Rule("!self.contains('..')", "a path may not contain '..'"),),
    )
    sha256: str = described("Digest of the file.", pattern=DIGEST_PATTERN)
    size_bytes: int = described("Size of the file in bytes.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """What the image consists of. It never changes: another content is another Image."""

    digest: str = described("Digest of the manifest; names the whole image.", pattern=DIGEST_PATTERN)
    architecture: Architecture = described("Processor architecture.")
    distribution: str = described("Distribution and release, such as ubuntu-24.04.", max_length=63)
    recipe: str = described("Recipe it was built from, such as gpu-node.", max_length=63)
    manifest: Artifact = described("The signed manifest; its signature lies beside it with the suffix .sig.")
    kernel: Artifact = described("Linux kernel.")
    stage1: Artifact = described("Initramfs that fetches and verifies the root.")
    root: Artifact = described("Squashfs of the root file system.")
    kernel_arguments: tuple[str, ...] = described("Kernel arguments beside those that each server gets.", default=(), max_items=64)
    versions: dict[str, str] = described("Versions of what matters: kernel, kubelet, containerd…", default_factory=dict, max_properties=32)
    signature: str = described("Signature of the manifest, in signify's format.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class ImageStatus:
    """Whether the image can be booted."""

    nodes: int | None = described("Servers that run it.", default=None)
    conditions: tuple[Condition, ...] = described("Observations.", default=(), list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class Image(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Image",
        plural="images",
        short="img",
        description="Kernel, stage-1 and root of a system that lives in RAM; immutable, named by digest.",
        columns=(
            Column("Distribution", ".spec.distribution"),
            Column("Architecture", ".spec.architecture"),
            Column("Kernel", ".spec.versions.kernel"),
            Column("Kubelet", ".spec.versions.kubelet"),
            Column("Nodes", ".status.nodes", type="integer"),
            Column("Available", ".status.conditions[?(@.type=='Available')].status"),
            Column("Digest", ".spec.digest", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(Rule("oldSelf.spec == self.spec", "an Image never changes: publish another one"),),
    )
    metadata: ObjectMeta
    spec: ImageSpec
    status: ImageStatus = ImageStatus()
