"""What an image is made of, as SPDX 2.3 in JSON: the same bytes for the same image.

Image → parts (kernel, stage-1, layers), each with its SHA-256 → packages → what is linked into them.
Source: SPDX specification 2.3; Package URL specification, types deb and golang.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from provisioner.api.servers.server import Architecture
from provisioner.image.finished.manifest import FileDigest
from provisioner.image.gates.packages.go_binary import GoBuild, GoModule
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.read.components import OWN, RECIPE

_NAMESPACE: Final = "https://provisioner.dev/spdx"
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9.-]+")
_NOTHING: Final = "NOASSERTION"


@dataclass(frozen=True, kw_only=True)
class SbomContents:
    """What the document tells. `parts` by name; `placed`: package or Go program by path → names of the parts it is in.

    `programs`: programs that Go built, by path, of no package or of the package `owners` names.
    """

    recipe: str
    distribution: str
    architecture: Architecture
    epoch: int
    version: str
    parts: Mapping[str, FileDigest]
    packages: tuple[InstalledPackage, ...]
    placed: Mapping[str, tuple[str, ...]]
    programs: Mapping[str, GoBuild]
    program_digests: Mapping[str, str]
    owners: Mapping[str, str]


def render_sbom(contents: SbomContents) -> bytes:
    """The document."""
    elements: dict[str, dict[str, Any]] = {}
    relations: set[tuple[str, str, str]] = set()
    image = "SPDXRef-Image"
    elements[image] = _element(
        image,
        contents.recipe,
        _digest(contents.parts),
        primaryPackagePurpose="OPERATING-SYSTEM",
        comment=f"{contents.distribution}, {contents.architecture}",
    )
    relations.add(("SPDXRef-DOCUMENT", "DESCRIBES", image))
    for name, file in sorted(contents.parts.items()):
        part = _part(name)
        elements[part] = _element(
            part,
            name,
            None,
            checksums=[{"algorithm": "SHA256", "checksumValue": file.sha256}],
            primaryPackagePurpose="FILE",
            comment=f"{file.size_bytes} bytes",
        )
        relations.add((image, "CONTAINS", part))
    distributor = contents.distribution.partition("-")[0]
    for package in contents.packages:
        _add_package(package, distributor, contents, elements, relations)
    for path, build in sorted(contents.programs.items()):
        _add_program(path, build, contents, elements, relations)
    _add_own(contents, elements, relations)
    created = datetime.datetime.fromtimestamp(contents.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{contents.recipe}-{contents.distribution}-{contents.architecture}",
        "documentNamespace": f"{_NAMESPACE}/{contents.recipe}/sha256-{_digest(contents.parts)}",
        "creationInfo": {"created": created, "creators": [f"Tool: provisioner-{contents.version}"]},
        "packages": [elements[key] for key in sorted(elements)],
        "relationships": [
            {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}
            for source, kind, target in sorted(relations)
        ],
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def deb_purl(name: str, version: str, architecture: str, distribution: str) -> str:
    """`pkg:deb/debian/runc@1.1.15%2Bds1-2?arch=amd64&distro=debian-13`."""
    vendor = distribution.partition("-")[0]
    return f"pkg:deb/{vendor}/{quote(name, safe='')}@{_quoted(version)}?arch={architecture}&distro={distribution}"


def go_purl(module: GoModule) -> str:
    """`pkg:golang/k8s.io/kubernetes@v1.36.3`."""
    version = f"@{_quoted(module.version)}" if module.version else ""
    return f"pkg:golang/{quote(module.path, safe='/')}{version}"


def _add_package(
    package: InstalledPackage,
    distributor: str,
    contents: SbomContents,
    elements: dict[str, dict[str, Any]],
    relations: set[tuple[str, str, str]],
) -> None:
    key = _identifier("deb", package.name, package.architecture)
    texts = ", ".join(f"sha256:{digest}" for digest in package.licence_files)
    elements[key] = _element(
        key,
        package.name,
        package.version,
        purl=deb_purl(package.name, package.version, package.architecture, contents.distribution),
        supplier=f"Organization: {distributor}",
        sourceInfo=f"built from source package {package.source} {package.source_version}",
        licenseComments=f"as in the image's document licences: {texts}" if texts else None,
    )
    for part in contents.placed.get(package.name, ()):
        relations.add((_part(part), "CONTAINS", key))
    for used in package.built_using:
        name, _, version = used.partition(" ")
        source = _identifier("source", name, version)
        elements[source] = _element(
            source,
            name,
            version,
            purl=deb_purl(name, version, "source", contents.distribution),
            primaryPackagePurpose="SOURCE",
        )
        relations.add((key, "STATIC_LINK", source))


def _add_program(
    path: str,
    build: GoBuild,
    contents: SbomContents,
    elements: dict[str, dict[str, Any]],
    relations: set[tuple[str, str, str]],
) -> None:
    owner = next((each for each in contents.packages if each.name == contents.owners.get(path)), None)
    if owner is not None:
        program = _identifier("deb", owner.name, owner.architecture)
    else:
        main = build.main or GoModule(build.package or path, "")
        program = _identifier("program", path)
        elements[program] = _element(
            program,
            path.rpartition("/")[2],
            main.version,
            purl=go_purl(main),
            checksums=[{"algorithm": "SHA256", "checksumValue": contents.program_digests[path]}],
            packageFileName=f"/{path}",
            primaryPackagePurpose="APPLICATION",
            sourceInfo=f"built with {build.toolchain}",
        )
        for part in contents.placed.get(path, ()):
            relations.add((_part(part), "CONTAINS", program))
    for module in (GoModule("stdlib", build.toolchain.removeprefix("go")), *build.modules):
        key = _identifier("go", module.path, module.version)
        elements[key] = _element(
            key,
            module.path,
            module.version,
            purl=go_purl(module),
            primaryPackagePurpose="LIBRARY",
            comment=f"go.sum {module.sum}" if module.sum else None,
        )
        relations.add((program, "STATIC_LINK", key))


def _add_own(contents: SbomContents, elements: dict[str, dict[str, Any]], relations: set[tuple[str, str, str]]) -> None:
    """This project's own programs, and what the recipe brings and the build makes: units, configuration, indexes."""
    own: dict[str, dict[str, Any]] = {
        OWN: {"version": contents.version, "licenseDeclared": "Apache-2.0", "primaryPackagePurpose": "APPLICATION"},
        RECIPE: {"version": None, "comment": "files of the recipe, and what the build made of others"},
    }
    for name, more in own.items():
        key = _identifier("own", name)
        for part in contents.placed.get(name, ()):
            elements[key] = _element(key, name, **more)
            relations.add((_part(part), "CONTAINS", key))


def _element(key: str, name: str, version: str | None, *, purl: str | None = None, **more: Any) -> dict[str, Any]:
    element: dict[str, Any] = {
        "SPDXID": key,
        "name": name,
        "downloadLocation": _NOTHING,
        "filesAnalyzed": False,
        "licenseConcluded": _NOTHING,
        "licenseDeclared": _NOTHING,
        "copyrightText": _NOTHING,
        **{field: value for field, value in more.items() if value is not None},
    }
    if version:
        element["versionInfo"] = version
    if purl is not None:
        element["externalRefs"] = [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        ]
    return element


def _part(name: str) -> str:
    return _identifier("part", name)


def _identifier(kind: str, *names: str) -> str:
    """An SPDX id: letters, digits, `.` and `-`; a digest keeps two apart that differ in other characters alone."""
    plain = [_NOT_IN_IDS.sub("-", name) for name in names]
    altered = any(one != other for one, other in zip(plain, names, strict=True))
    suffix = [hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]] if altered else []
    return "-".join(["SPDXRef", kind, *plain, *suffix])


def _digest(parts: Mapping[str, FileDigest]) -> str:
    """Of all parts together: it is what makes this document's name its own."""
    lines = (f"{name} {file.sha256} {file.size_bytes}\n" for name, file in sorted(parts.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _quoted(version: str) -> str:
    return quote(version, safe=":~")
