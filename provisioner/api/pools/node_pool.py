"""NodePool: servers that boot one image and become Nodes with the same labels, taints and kubelet configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import KERNEL_ARGUMENT, LABEL_VALUE_RULES, NAME_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.pools.numa_alignment import COMPUTED_FIELDS, NOT_BESIDE_CONFIGURATION, NumaAlignment
from provisioner.api.pools.pool_settings import JobSettings, MaintenanceSettings, VerificationSettings
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutRecord, RolloutStatus
from provisioner.api.pools.upgrade_strategy import MaintenanceWindow, UpgradeStrategy

_KEY_WORDS = (
    "must be a name with an optional domain before it, such as example.com/rack: letters, digits, '-', '_', '.'"
)


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A taint as Kubernetes knows it."""

    key: str = described(
        "Key of the taint.",
        max_length=253,
        rules=(CelRule("!format.qualifiedName().validate(self).hasValue()", f"a taint's key {_KEY_WORDS}"),),
    )
    value: str | None = optional("Value of the taint.", max_length=63, rules=LABEL_VALUE_RULES)
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = described("Effect of the taint.")


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """What the pool's Nodes and kubelets get."""

    RULES: ClassVar[tuple[CelRule, ...]] = (NOT_BESIDE_CONFIGURATION,)
    labels: dict[str, str] = described(
        "Labels of the Nodes.",
        default_factory=dict,
        max_properties=64,
        item=FieldSchema(doc="A label's value.", max_length=63, rules=LABEL_VALUE_RULES),
        rules=(
            CelRule("self.all(key, !format.qualifiedName().validate(key).hasValue())", f"a label's key {_KEY_WORDS}"),
            CelRule(
                "!self.exists(key, key == 'kubernetes.io/hostname' || key.startsWith('provisioner.dev/'))",
                "kubernetes.io/hostname and labels of provisioner.dev are set for each Node: leave them out",
            ),
        ),
    )
    taints: tuple[Taint, ...] = listed(
        "Taints of the Nodes.",
        max_items=32,
        list_map_keys=("key", "effect"),
        rules=(
            CelRule(
                "!self.exists(taint, taint.key.startsWith('provisioner.dev/'))",
                "taints of provisioner.dev are put on and taken off by the provisioner alone: leave them out",
            ),
        ),
    )
    configuration: dict[str, Any] = described(
        "Fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) put over the built-in ones.",
        default_factory=dict,
        preserve_unknown=True,
        known=(
            ("authentication", "object"),
            ("authorization", "object"),
            ("serverTLSBootstrap", "boolean"),
            ("rotateCertificates", "boolean"),
            *COMPUTED_FIELDS.items(),
        ),
        rules=(
            CelRule(
                "!has(self.authentication) && !has(self.authorization) && !has(self.serverTLSBootstrap) && "
                "!has(self.rotateCertificates)",
                "authentication, authorization, serverTLSBootstrap and rotateCertificates keep a Node's kubelet "
                "closed to strangers and are not the pool's to change: leave them out",
            ),
        ),
    )
    numa_alignment: NumaAlignment | None = optional(
        "If set, even to {}: CPUs, memory and devices of a Guaranteed pod come from one NUMA node (CPU manager static, "
        "memory manager Static, topology manager single-numa-node)."
    )


@dataclass(frozen=True, kw_only=True)
class StageTimeouts:
    """How long each stage of a boot may take, in seconds."""

    firmware: int | None = optional("Firmware: power-on to iPXE's DHCP request.", minimum=10, maximum=7200)
    ipxe: int | None = optional("iPXE: its DHCP request to stage-1.", minimum=10, maximum=7200)
    stage1: int | None = optional("Stage-1: its start to the fetch of the root.", minimum=10, maximum=7200)
    root: int | None = optional("Root: fetch, verification and switch over.", minimum=10, maximum=7200)
    system: int | None = optional("System: switch over to the join request.", minimum=10, maximum=7200)
    token: int | None = optional("Token: join request to its answer.", minimum=10, maximum=7200)
    kubelet: int | None = optional("Kubelet: join configuration to Ready.", minimum=10, maximum=7200)


@dataclass(frozen=True, kw_only=True)
class Borrowing:
    """Which servers, and when. Of two NodePools that want the same server the first by name has it."""

    node_pool_ref: str = described(
        "NodePool of the servers (their spec.nodePoolRef), to which they go back.", max_length=63, rules=NAME_RULES
    )
    selector: str = described("Labels of the Servers, such as example.com/lent=true.", min_length=1, max_length=512)
    windows: tuple[MaintenanceWindow, ...] = described(
        "When: from each opening on they move in as their jobs end, from its close on they go back likewise.",
        min_items=1,
        max_items=16,
    )


@dataclass(frozen=True, kw_only=True)
class NodePoolSpec:
    """What the pool's servers boot and become."""

    image_ref: str = described(
        "Image that the pool's servers shall run. Those that run another one move to it as spec.upgradeStrategy says.",
        max_length=253,
        rules=NAME_RULES,
    )
    upgrade_strategy: UpgradeStrategy = described(
        "How servers move to another image, as their jobs end.", default_factory=UpgradeStrategy
    )
    borrows: tuple[Borrowing, ...] = listed(
        "Servers of other NodePools that are in this one at certain times. They come, and go back, as their jobs end.",
        max_items=16,
        list_map_keys=("nodePoolRef", "selector"),
    )
    attestation: Literal["Required", "Optional"] = described(
        "Required: a server joins only after its TPM proved which machine it is and what it booted (but see "
        "withoutTPM). Optional: a server of which no TPM is known joins by its address, once per boot that the "
        "controller itself ordered. A proof that is offered has to hold in both.",
        server_default="Required",
    )
    without_tpm: Literal["Refused", "VouchedByDPU"] = described(
        "Where attestation is Required, what becomes of a server that has no TPM. Refused: it does not join. "
        "VouchedByDPU: it joins through a DPU with spec.dpu.hostBoot Proxied that has proved its own boot; that says "
        "which machine it is, and not what it runs.",
        server_default="Refused",
    )
    kubelet: KubeletSettings = described("What the pool's Nodes and kubelets get.", default_factory=KubeletSettings)
    kernel_arguments: tuple[str, ...] = listed("Further kernel arguments.", max_items=64, item=KERNEL_ARGUMENT)
    stage_timeout_seconds: StageTimeouts = described(
        "How long each stage of a boot may take. What takes longer is told; a boot is given up after the stages up to "
        "the join together, or after that of the kubelet.",
        default_factory=StageTimeouts,
    )
    jobs: JobSettings = described("Which jobs must not notice.", default_factory=JobSettings)
    maintenance: MaintenanceSettings = described(
        "How the pool's servers are disturbed.", default_factory=MaintenanceSettings
    )
    verification: VerificationSettings = described(
        "What is checked after every boot, before the node may be used.", default_factory=VerificationSettings
    )


@dataclass(frozen=True, kw_only=True)
class NodePoolStatus:
    """Counts of the pool's servers, and how far they are on their way to its image."""

    desired: int | None = optional("Accepted servers of the pool that are to be on.")
    updated: int | None = optional("Those that are in use with the pool's image.")
    updating: int | None = optional("Those that are on their way to it.")
    waiting: int | None = optional("Those in use with another image, which wait for their turn.")
    left_alone: int | None = optional(
        "Those in use with another image that the rollout leaves as they are: held, excluded, reimaged by a person "
        "since it began, or of another architecture than the image."
    )
    failed: int | None = optional(
        "Those that did not get to it, or got there and went out of use: they wait for a person."
    )
    unavailable: int | None = optional("Those that are not in use, whatever the reason.")
    released: ReleasedImage | None = optional(
        "Image that has passed the canary here: what servers without a Node, and new ones, boot."
    )
    rollout: RolloutStatus | None = optional("The rollout under way, or the last one.")
    history: tuple[RolloutRecord, ...] = listed(
        "Rollouts that are over, the last one first.", max_items=10, item=FieldSchema(doc="A rollout that is over.")
    )
    conditions: tuple[Condition, ...] = listed(
        "Ready, and of the rollout: Progressing, Paused, Degraded.", max_items=32, list_map_keys=("type",)
    )


@dataclass(frozen=True, kw_only=True)
class NodePool(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="NodePool",
        short="np",
        description="Servers that boot one image and become Nodes with the same labels, taints and kubelet settings.",
        columns=(
            Column("Image", ".spec.imageRef"),
            Column("Attestation", ".spec.attestation"),
            Column("Desired", ".status.desired", type="integer"),
            Column("Updated", ".status.updated", type="integer"),
            Column("Updating", ".status.updating", type="integer"),
            Column("Waiting", ".status.waiting", type="integer"),
            Column("Left-Alone", ".status.leftAlone", type="integer"),
            Column("Failed", ".status.failed", type="integer"),
            Column("Unavailable", ".status.unavailable", type="integer"),
            Column("State", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
            Column("Rollout", ".status.rollout.message"),
            Column("Expected", ".status.rollout.expectedTime", priority=1),
        ),
        rules=(
            CelRule(
                "self.metadata.name.size() <= 63", "a NodePool's name is also a label value: at most 63 characters"
            ),
            CelRule(
                "!has(self.spec.borrows) || !self.spec.borrows.exists(each, each.nodePoolRef == self.metadata.name)",
                "a NodePool borrows servers of others: name another one in spec.borrows[].nodePoolRef",
            ),
        ),
    )
    spec: NodePoolSpec
    status: NodePoolStatus = NodePoolStatus()
