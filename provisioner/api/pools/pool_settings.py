"""Parts of a NodePool: which jobs count, how its servers are disturbed, and what is checked before use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from provisioner.api.machinery.rules import AMOUNT_PATTERN, NAME_RULES, PRINTABLE_RULES
from provisioner.api.machinery.schema import CelRule, FieldSchema, described, listed, optional
from provisioner.api.nodes.maintenance import RebootMethod
from provisioner.api.pools.gpu_settings import GpuSettings

WarningSignal = Literal["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "URG", "WINCH"]
"""slurmrestd takes a name that it does not know for a request to cancel the job: nothing else may reach it."""

CHECK_NAMESPACE: Final = "provisioner-checks"
"""Where the Jobs of checks run that name no other."""


@dataclass(frozen=True, kw_only=True)
class PodJobs:
    """Which pods are jobs. Pods of DaemonSets and mirror pods never are."""

    selectors: tuple[str, ...] = listed(
        "Label selectors, such as app=training; a pod that matches one is a job. Absent: whatever requests a GPU or "
        "belongs to a Job, JobSet, Kueue Workload or PodGroup.",
        max_items=16,
        item=FieldSchema(doc="A label selector as kubectl takes it.", min_length=1, max_length=512),
    )
    ignored_selectors: tuple[str, ...] = listed(
        "Label selectors; a pod that matches one is no job, whatever else it is.",
        max_items=16,
        item=FieldSchema(doc="A label selector as kubectl takes it.", min_length=1, max_length=512),
    )


@dataclass(frozen=True, kw_only=True)
class SlurmJobs:
    """The Slurm cluster whose slurmd runs on the pool's servers."""

    url: str = described(
        "Base URL of slurmrestd, such as http://slurm:6820.", max_length=253, pattern=r"^https?://[^\s]+$"
    )
    credentials_name: str = described(
        "Secret of namespace provisioner-slurm with the keys username and token (a JWT of `scontrol token`).",
        max_length=253,
        rules=NAME_RULES,
    )
    node_name_prefix: str = described(
        "What stands before a server's name to make its name in Slurm.", default="", max_length=63
    )
    certificate: str | None = optional(
        "PEM certificate authority of slurmrestd's TLS; the system's trust store decides if absent.", max_length=16384
    )
    signal: WarningSignal | None = optional(
        "Signal that the steps of jobs get when a deadline is announced; none if absent. A step that does not handle "
        "it ends of it."
    )


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Where jobs are looked for."""

    kubernetes: PodJobs = described("Which pods are jobs.", default_factory=PodJobs)
    slurm: SlurmJobs | None = optional("The Slurm cluster of the pool, if it has one.")


@dataclass(frozen=True, kw_only=True)
class MethodTimeouts:
    """How long each reboot method may take until something of the new boot is seen, in seconds."""

    kexec: int = described("Kexec.", server_default=180, minimum=5, maximum=7200)
    reboot: int = described("Reboot by the system itself.", server_default=900, minimum=5, maximum=7200)
    reset: int = described("Reset by the BMC.", server_default=900, minimum=5, maximum=7200)
    power_cycle: int = described("Power off and on.", server_default=900, minimum=5, maximum=7200)


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings:
    """How the pool's servers are disturbed."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : "
            f"self.maxUnavailable.matches('{AMOUNT_PATTERN}'))",
            "maxUnavailable is a count, such as 2, or a share up to 100%, such as 10%; 0 pauses",
            field=".maxUnavailable",
        ),
        CelRule(
            "!has(self.rebootMethods) || self.rebootMethods.all(m, self.rebootMethods.exists_one(n, n == m))",
            "a reboot method occurs twice: name each once, in the order in which they are tried",
            field=".rebootMethods",
        ),
    )
    max_unavailable: int | str | None = optional(
        "How many of the pool's servers may be disturbed at once: a count, or a share such as 10% (rounded up). 0 "
        "pauses. 10% if absent."
    )
    reboot_methods: tuple[RebootMethod, ...] = listed(
        "Reboot methods in the order in which they are tried; all four, the gentlest first, if absent.", max_items=4
    )
    kexec_models: tuple[str, ...] = listed(
        "Product names (SMBIOS) of servers that may be rebooted by kexec; '*' for all. None if absent: drivers of some "
        "devices do not survive a kexec.",
        max_items=64,
        item=FieldSchema(doc="A product name, or '*'.", min_length=1, max_length=128, rules=PRINTABLE_RULES),
    )
    method_timeout_seconds: MethodTimeouts = described(
        "How long each method may take until something of the new boot is seen.", default_factory=MethodTimeouts
    )
    cordon: Literal["WhenIdle", "WhenPlanned"] = described(
        "WhenIdle: a node stays open to jobs until none runs. WhenPlanned: it takes no new job as soon as a "
        "disturbance is planned, and running ones end.",
        server_default="WhenIdle",
    )
    warning_seconds: int = described(
        "How long before a deadline running jobs are warned.", server_default=900, minimum=0, maximum=604800
    )
    drain_timeout_seconds: int = described(
        "How long evictions may be held up (by a PodDisruptionBudget, say) before the disturbance is given up.",
        server_default=3600,
        minimum=10,
        maximum=604800,
    )
    verification_timeout_seconds: int = described(
        "How long a booted node may take until it is Ready and its checks have passed.",
        server_default=1800,
        minimum=10,
        maximum=86400,
    )


@dataclass(frozen=True, kw_only=True)
class ExpectedGpus:
    """GPUs by PCI."""

    count: int = described("How many there are.", minimum=0, maximum=64)
    vendor_id: str = described("PCI vendor, four hexadecimal digits.", server_default="10de", pattern=r"^[0-9a-f]{4}$")
    device_id: str | None = optional("PCI device, four hexadecimal digits; any if absent.", pattern=r"^[0-9a-f]{4}$")


@dataclass(frozen=True, kw_only=True)
class ExpectedInfiniband:
    """InfiniBand ports."""

    ports: int = described("How many there are.", minimum=0, maximum=64)
    state: Literal["ACTIVE", "INIT", "Any"] = described("State that each must be in.", server_default="ACTIVE")
    rate_gbps: int | None = optional("Rate that each must have at least, in Gb/s.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class ExpectedInventory:
    """What each server of the pool must have. What is absent here is not looked at."""

    cpus: int | None = optional("Logical processors, exactly.", minimum=1)
    memory_mib: int | None = optional("Memory that the kernel sees, at least, in MiB.", minimum=1)
    disks: int | None = optional("Disks, at least.", minimum=0)
    nics: int | None = optional("Network interfaces with a PCI device, at least.", minimum=0)
    gpus: ExpectedGpus | None = optional("GPUs.")
    infiniband: ExpectedInfiniband | None = optional("InfiniBand ports.")


@dataclass(frozen=True, kw_only=True)
class JobCheck:
    """A check of the site's own: a Job that runs on the node, under the verification taint.

    It passes when it completes. It fails when its pod ends otherwise; the pod's termination message, plain or
    {"result": "Passed"|"Failed", "reason": "…", "message": "…"}, is shown, and a result in it decides.
    """

    name: str = described("Name of the check, unique in the pool.", max_length=40, rules=NAME_RULES)
    namespace: str = described("Namespace of the Job.", server_default=CHECK_NAMESPACE, max_length=63, rules=NAME_RULES)
    template: dict[str, Any] = described(
        "JobTemplateSpec (batch/v1): metadata and spec. Node, tolerations, restart policy and back-off are set for it.",
        preserve_unknown=True,
        known=(("spec", "object"),),
        rules=(
            CelRule(
                "has(self.spec)", "a check's template needs spec, that of a Job: write spec.template.spec.containers"
            ),
        ),
    )
    timeout_seconds: int = described("How long it may take.", server_default=600, minimum=5, maximum=86400)


@dataclass(frozen=True, kw_only=True)
class VerificationSettings:
    """What is checked after every boot, before the node may be used."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.gpus) || (has(self.expected) && has(self.expected.gpus) && self.expected.gpus.count > 0 && "
            "(!has(self.expected.gpus.vendorID) || self.expected.gpus.vendorID == '10de'))",
            "gpus says how NVIDIA's GPUs must be and expected.gpus does not expect any: set expected.gpus.count, with "
            "vendorID 10de",
            field=".gpus",
        ),
    )
    expected: ExpectedInventory = described("What each server must have.", default_factory=ExpectedInventory)
    gpus: GpuSettings | None = optional(
        "How its GPUs must be, by NVML. If absent, each setting's default, where NVIDIA's driver is bound to them."
    )
    root_free_mib: int = described("Free space that the root must have, in MiB.", server_default=64, minimum=0)
    clock_skew_seconds: int = described(
        "How far the node's clock may be off, in seconds.", server_default=10, minimum=1, maximum=3600
    )
    checks: tuple[JobCheck, ...] = listed(
        "Checks of the site's own, one after the other.", max_items=16, list_map_keys=("name",)
    )
    attempts: int = described(
        "How many rounds of checks a boot gets by itself, the first one among them, before a person is asked.",
        server_default=2,
        minimum=1,
        maximum=10,
    )
