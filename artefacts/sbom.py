"""What a container image is made of, as SPDX 2.3 in JSON: image → layers, packages of Debian, wheels.

Source: SPDX specification 2.3; Package URL specification, types deb and pypi.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, Final

from artefacts.build import Built
from artefacts.debian import DISTRIBUTION, DebianPackage
from artefacts.wheels import Wheel
from provisioner.image.gates.documents.sbom import deb_purl

_NAMESPACE: Final = "https://provisioner.dev/spdx/container"
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9.-]+")


def render_sbom(built: Built, created: int) -> bytes:
    """The document, the same bytes for the same image."""
    image = built.image
    root = _element("SPDXRef-Image", image.name, image.version, image.digest, purpose="CONTAINER")
    parts = [
        *(
            _element(f"SPDXRef-Layer-{number}", layer.called, "", layer.digest, purpose="FILE")
            for number, layer in enumerate(image.layers)
        ),
        *(_of_debian(package) for package in built.packages),
        *(_of_wheel(wheel) for wheel in built.wheels),
    ]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image.name}-{image.version}-{image.machine}",
        "documentNamespace": f"{_NAMESPACE}/{image.name}/{image.digest.replace(':', '-')}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(created, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: provisioner-{image.version}"],
        },
        "packages": [root, *parts],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
            *(_relation("SPDXRef-Image", "CONTAINS", part["SPDXID"]) for part in parts),
        ],
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _of_debian(package: DebianPackage) -> dict[str, Any]:
    purl = deb_purl(package.name, package.version, package.architecture, DISTRIBUTION)
    return _element(_id("Deb", package.name), package.name, package.version, f"sha256:{package.sha256}", purl=purl)


def _of_wheel(wheel: Wheel) -> dict[str, Any]:
    purl = f"pkg:pypi/{wheel.name}@{wheel.version}"
    return _element(_id("Wheel", wheel.name), wheel.name, wheel.version, f"sha256:{wheel.sha256}", purl=purl)


def _element(key: str, name: str, version: str, digest: str, *, purpose: str = "", purl: str = "") -> dict[str, Any]:
    return {
        "SPDXID": key,
        "name": name,
        **({"versionInfo": version} if version else {}),
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest.removeprefix("sha256:")}],
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "filesAnalyzed": False,
        **({"primaryPackagePurpose": purpose} if purpose else {}),
        **(
            {
                "externalRefs": [
                    {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
                ]
            }
            if purl
            else {}
        ),
    }


def _relation(source: str, kind: str, target: str) -> dict[str, str]:
    return {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}


def _id(kind: str, name: str) -> str:
    return f"SPDXRef-{kind}-{_NOT_IN_IDS.sub('-', name.replace('+', 'p'))}"
