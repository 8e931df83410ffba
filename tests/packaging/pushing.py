"""A container image into a registry, by the calls that the product's own images are pushed with."""

from __future__ import annotations

import hashlib

from artefacts.archive import ContainerImage
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.registry.access import open_access
from provisioner.image.registry.client import Registry
from provisioner.image.registry.reference import parse_repository
from provisioner.image.registry.transport import RegistryTransport


def push(image: ContainerImage, address: str) -> None:
    """To a registry on this machine, such as oci://127.0.0.1:5000/provisioner; tagged with its version."""
    with RegistryTransport(open_access(parse_repository(address))) as transport:
        registry = Registry(transport)
        for content in (image.config, *(layer.content for layer in image.layers)):
            digest = Sha256Digest("sha256:" + hashlib.sha256(content).hexdigest())
            if not registry.has_blob(digest, len(content)):
                registry.push_blob(digest, len(content), lambda begin, count, it=content: it[begin : begin + count])  # type: ignore[misc]
        registry.put_manifest(image.version, image.manifest)
