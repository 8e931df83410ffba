"""Image: kernel, stage-1 and layers of a system that lives in RAM; immutable, named by digest."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Final

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import DIGEST_RULES, KERNEL_ARGUMENT
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, json_name, listed, optional
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Architecture


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One file of an image."""

    path: str = described(
        "Path below the image store, such as parts/sha256-9f3c….",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        max_length=253,
        rules=(CelRule("!self.contains('..')", "a path may not contain '..'"),),
    )
    sha256: str = described("Digest of the file.", max_length=71, rules=DIGEST_RULES)
    size_bytes: int = described("Size of the file in bytes.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class NamedArtifact(Artifact):
    """A file of which an image has several of its kind."""

    name: str = described(
        "Name within the image, such as base or site.", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=32
    )


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What a machine's firmware measures when it starts the image, beside the digests of the files themselves."""

    kernel_authenticode_sha256: str = described(
        "Authenticode SHA-256 of the kernel, which the firmware measures when it starts it. Stage-1 is measured by its "
        "own digest.",
        max_length=71,
        rules=DIGEST_RULES,
    )


def _once_each(kind: str) -> CelRule:
    return CelRule("self.all(one, self.exists_one(other, other.name == one.name))", f"no two {kind} have one name")


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """What the image consists of. It never changes: another content is another Image."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "has(self.root) != has(self.layers)",
            "an Image has either layers or, of the older format, a root: publish it with provisioner image publish, "
            "which sets what its manifest says",
        ),
    )

    digest: str = described("Digest of the manifest; names the whole image.", max_length=71, rules=DIGEST_RULES)
    architecture: Architecture = described("Processor architecture.")
    distribution: str = described("Distribution and release, such as ubuntu-24.04.", min_length=1, max_length=63)
    recipe: str = described("Recipe it was built from, such as gpu-node.", min_length=1, max_length=63)
    manifest: Artifact = described("The signed manifest; its signature lies beside it with the suffix .sig.")
    kernel: Artifact = described("Linux kernel.")
    stage1: Artifact = described("Initramfs that fetches and verifies the root.")
    root: Artifact | None = optional("Squashfs of the root file system, of an image of the older format.")
    layers: tuple[NamedArtifact, ...] = listed(
        "Squashfs of each layer of the root file system, from the bottom of the overlay to its top.",
        min_items=1,
        max_items=16,
        rules=(_once_each("layers"),),
    )
    documents: tuple[NamedArtifact, ...] = listed(
        "What the build says of the image, for people and scanners, such as sbom. No server fetches them.",
        max_items=16,
        rules=(_once_each("documents"),),
    )
    kernel_arguments: tuple[str, ...] = listed(
        "Kernel arguments beside those that each server gets.", max_items=64, item=KERNEL_ARGUMENT
    )
    versions: dict[str, str] = described(
        "Versions of what matters: kernel, kubelet, containerd…",
        default_factory=dict,
        max_properties=32,
        item=FieldSchema(doc="A version.", max_length=253),
    )
    signature: str = described("Signature of the manifest, in signify's format.", max_length=1024)
    measurements: Measurements | None = optional(
        "What TPMs are to show of a machine that booted it; absent of an Image that was published before there were "
        "such: publish it again."
    )

    @property
    def file_systems(self) -> tuple[Artifact, ...]:
        """What the root is mounted from, from the bottom to the top: the layers, or the root."""
        return self.layers if self.root is None else (self.root,)

    @property
    def served(self) -> tuple[Artifact, ...]:
        """All that a server fetches to boot it, beside the manifest's signature."""
        return (self.manifest, self.kernel, self.stage1, *self.file_systems)


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """A boot host that has the image, and when it said so last."""

    host: str = described("Host name of the boot host.", min_length=1, max_length=253)
    time: str = described("When it said last that its image store has every file.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class ImageStatus:
    """Whether the image can be booted."""

    stores: tuple[StoreReport, ...] = listed(
        "Boot hosts that have every file; one that no longer says so is left out after a quarter of an hour.",
        max_items=64,
        list_map_keys=("host",),
    )
    lacking_host: str | None = optional(
        "Boot host that lacks a file, of which the condition Available tells while it is False.", max_length=253
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


def _stays(field: Field[Any]) -> str:
    name = json_name(field.name)
    same = f"oldSelf.spec.{name} == self.spec.{name}"
    if field.default is MISSING and field.default_factory is MISSING:
        return same
    return f"has(oldSelf.spec.{name}) == has(self.spec.{name}) && (!has(self.spec.{name}) || {same})"


_THE_REST_STAYS: Final = " && ".join(_stays(each) for each in fields(ImageSpec) if each.name != "measurements")
"""What is computed from the kernel may be added to an Image that has none."""


@dataclass(frozen=True, kw_only=True)
class Image(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Image",
        short="img",
        description="Kernel, stage-1 and layers of a system that lives in RAM; immutable, named by digest.",
        columns=(
            Column("Distribution", ".spec.distribution"),
            Column("Architecture", ".spec.architecture"),
            Column("Kernel", ".spec.versions.kernel"),
            Column("Kubelet", ".spec.versions.kubelet"),
            Column("Available", ".status.conditions[?(@.type=='Available')].status"),
            Column("Verified", ".status.conditions[?(@.type=='Verified')].reason"),
            Column("Digest", ".spec.digest", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule(
                f"oldSelf.spec == self.spec || !has(oldSelf.spec.measurements) && {_THE_REST_STAYS}",
                "an Image never changes: publish another one, and point the NodePool's imageRef at it",
            ),
            CelRule("self.metadata.name.size() <= 63", "an Image's name is also a label value: at most 63 characters"),
        ),
    )
    spec: ImageSpec
    status: ImageStatus = ImageStatus()


def intent_arguments(pool: NodePool, image: Image) -> tuple[str, ...]:
    """The Image's kernel arguments, then the pool's: `BootIntent.kernel_arguments` for a boot of `image`.

    The rest of a server's command line (`provisioner.*`, `initrd=`, `systemd.machine_id=`, `net.ifnames=`, `console=`)
    is its own: iPXE gets it from the boot service, and an agent that starts the next system by kexec keeps it from its
    running command line. Both add these words, in this order, so that a machine has the same command line however it
    was booted.
    """
    return (*image.spec.kernel_arguments, *pool.spec.kernel_arguments)
