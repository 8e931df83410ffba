"""What came of boots, certificates and BMCs, counted from what is written into objects, and as it happens.

Reasons come from objects, which others write: whatever is none of those known here is counted as `Other`.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from provisioner.api.servers.boot_stage import BOOT_STAGES, is_late
from provisioner.cluster.series import born, counts_of, gauge, new_counter
from provisioner.cluster.source import Json, Source, conditions_of, spec_of

OTHER: Final = "Other"
STAGES: Final = tuple(stage for stage in BOOT_STAGES if stage != "Ready")
SIGNERS: Final[Mapping[str, str]] = {
    "kubernetes.io/kube-apiserver-client-kubelet": "client",
    "kubernetes.io/kubelet-serving": "serving",
}
CERTIFICATE_OUTCOMES: Final = (
    "Approved",
    "NameTaken",
    "ServerDeleted",
    "Malformed",
    "WrongSubject",
    "WeakKey",
    "WrongUsages",
    "WrongExpiration",
    "UnknownServer",
    "NotAccepted",
    "UnknownRequester",
    "WrongSigner",
    "WrongToken",
    "TokenSpent",
    "NotItsOwnName",
    "UnknownCertificate",
    "OldCertificate",
    "BootEnds",
    "WrongNames",
    OTHER,
)
"""Approved, and why one was denied, as `join.certificates.approve` words it."""
BMC_ERRORS: Final = (
    "BMCUnreachable",
    "BMCCutOff",
    "ForeignLink",
    "CredentialsMissing",
    "CredentialsRefused",
    "CredentialsUnusable",
    "PasswordChangeRequired",
    "AccountLocked",
    "AddressInvalid",
    "BMCUnusable",
    "PlainHTTP",
    "CertificateRefused",
    "CertificateInvalid",
    "SystemNotFound",
    "PrivilegeRefused",
    "NotSupported",
    "ResetNotSupported",
    "RequestRefused",
    OTHER,
)
"""Reasons of condition PoweredOn for which a BMC could not be made use of (docs/runbook.md, BMCs)."""


class OutcomeMeter:
    """`follow` the caches anew for each leadership; what is there already was counted by who led before."""

    def __init__(self, registry: CollectorRegistry) -> None:
        words = "Boots that were found to be in a stage for longer than it may take."
        self._late = new_counter(registry, "boot_stage_timeouts", words, ("stage",))
        words = "Certificate requests of kubelets that were decided, by signer and outcome."
        self._certificates = new_counter(registry, "certificates", words, ("signer", "outcome"))
        self._bmcs = new_counter(registry, "bmc_errors", "Looks at BMCs that failed, by how.", ("error",))
        born(self._late, STAGES)
        born(self._certificates, SIGNERS.values(), CERTIFICATE_OUTCOMES)
        born(self._bmcs, BMC_ERRORS)

    def follow_servers(self, servers: Source) -> None:
        servers.subscribe(self._server_changed)

    def follow_certificates(self, requests: Source) -> None:
        requests.subscribe(self._request_changed)

    def bmc_failed(self, reason: str) -> None:
        """A look at a BMC failed for a reason of condition PoweredOn."""
        self._bmcs.labels(_known(reason, BMC_ERRORS)).inc()

    def _server_changed(self, _key: str, old: Json | None, new: Json | None) -> None:
        if old is None or new is None:
            return
        stage = late_stage(new)
        if stage is not None and stage != late_stage(old):
            self._late.labels(stage).inc()

    def _request_changed(self, _key: str, old: Json | None, new: Json | None) -> None:
        signer = SIGNERS.get(str(spec_of(new).get("signerName")))
        if old is None or new is None or signer is None:
            return
        before, after = _decision(old), _decision(new)
        if before is None and after is not None:
            self._certificates.labels(signer, after).inc()


def late_boots(servers: Source) -> Iterable[Metric]:
    late = Count(stage for server in servers.items() if (stage := late_stage(server)) is not None)
    words = "Servers whose boot has been in that stage for longer than it may, or was given up there."
    yield gauge("boots_late", words, ("stage",), counts_of(late, STAGES))


def late_stage(server: Json) -> str | None:
    """The stage in which its boot is late, or in which it was given up until it is booted again; None if neither."""
    status = server.get("status") or {}
    reasons = {each.get("type"): each.get("reason") for each in conditions_of(server)}
    if not is_late(reasons.get("Ready"), reasons.get("Booted")):
        return None
    return _known(str(status.get("bootStage") or "Ordered"), STAGES, "Ordered")


def _decision(request: Json) -> str | None:
    """One of CERTIFICATE_OUTCOMES; None while it is not decided."""
    for condition in conditions_of(request):
        if condition.get("type") == "Approved":
            return "Approved"
        if condition.get("type") == "Denied":
            return _known(str(condition.get("reason")), CERTIFICATE_OUTCOMES)
    return None


def _known(word: str, words: Iterable[str], otherwise: str = OTHER) -> str:
    return word if word in words else otherwise
