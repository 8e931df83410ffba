"""Whether the API server knows the kinds as this version writes them: CRDs are applied before what relies on them.

A field that the API server does not know makes it refuse the write that has it, or drop the field: both would come
later, one object at a time, in words that tell nobody what was forgotten.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from provisioner import __version__
from provisioner.api.crd import all_crds
from provisioner.api.machinery.errors import NotFound, ProvisionerError
from provisioner.api.machinery.schema import VERSION
from provisioner.cluster.client import Cluster

log = structlog.get_logger(__name__)

ASK_AGAIN_SECONDS: Final = 5.0
SHOWN: Final = 5
REMEDY: Final = (
    f"apply the kinds of version {__version__} first: provisioner crds | kubectl apply --server-side "
    "--force-conflicts -f - (docs/upgrading.md)"
)


def find_missing(served: Mapping[str, Any]) -> list[str]:
    """Fields of our kinds that `served`, an OpenAPI 3 document of the API server, lacks: `Server.status.order.id`.

    Of what is missing as a whole only the top is named. Compared is the API version that this code speaks.
    """
    kinds = {
        names.get("kind"): schema
        for schema in ((served.get("components") or {}).get("schemas") or {}).values()
        for names in schema.get("x-kubernetes-group-version-kind") or ()
    }
    missing = []
    for crd in all_crds():
        kind = crd["spec"]["names"]["kind"]
        (version,) = [each for each in crd["spec"]["versions"] if each["name"] == VERSION]
        if kind not in kinds:
            missing.append(kind)
        else:
            missing += _compare(version["schema"]["openAPIV3Schema"], kinds[kind], kind)
    return missing


def _compare(wanted: Mapping[str, Any], served: Mapping[str, Any], path: str) -> Iterator[str]:
    """metadata is Kubernetes' own, and described elsewhere."""
    known = served.get("properties") or {}
    for name, schema in (wanted.get("properties") or {}).items():
        if name not in known:
            yield f"{path}.{name}"
        elif path.count(".") or name != "metadata":
            yield from _compare(schema, known[name], f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(wanted.get(inner), dict) and isinstance(served.get(inner), dict):
            yield from _compare(wanted[inner], served[inner], f"{path}[]")


def wait_for_kinds(cluster: Cluster, stop: threading.Event) -> bool:
    """Wait until all is served, and say in the log for what; False if `stop` was set before."""
    told: list[str] = []
    while not stop.is_set():
        missing = ask_what_is_missing(cluster)
        if missing == []:
            return True
        if missing is not None and missing != told:
            _tell(missing)
            told = missing
        stop.wait(ASK_AGAIN_SECONDS)
    return False


def warn_of_kinds(cluster: Cluster) -> None:
    """For what goes on all the same: machines get their scripts, whatever cannot be written of them."""
    if missing := ask_what_is_missing(cluster):
        _tell(missing)


def ask_what_is_missing(cluster: Cluster) -> list[str] | None:
    """As `find_missing`; None if the API server does not say."""
    try:
        return find_missing(cluster.served_schemas())
    except NotFound:
        return find_missing({})
    except ProvisionerError as error:
        log.warning("api server does not say which kinds it serves", error=str(error))
        return None


def _tell(missing: list[str]) -> None:
    more = max(0, len(missing) - SHOWN)
    shown = missing[:SHOWN]
    log.warning("kinds are older than this version", version=__version__, missing=shown, more=more, remedy=REMEDY)
