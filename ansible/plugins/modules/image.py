#!/usr/bin/python
"""An image: pushed into a registry, put into a store, published as an Image object."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image
short_description: Publish a built image
version_added: 0.2.0
description:
  - Publishes an image that C(provisioner image build) has made, as C(provisioner image publish) does. Before anything
    is written its signature, sizes and digests are checked by O(public_key).
  - With O(registry), it is pushed there first, as boot hosts begin to pull when the Image appears.
  - An Image never changes, and publishing it again changes nothing. There is no O(state) to delete one, as what may
    go is decided by all that names it, which C(provisioner image gc) looks at.
  - Runs where the image lies, such as on the machine that builds images or on a boot host.
author: The authors of provisioner
extends_documentation_fragment:
  - provisioner.provisioner.cluster
attributes:
  check_mode:
    description: The image is checked, and what would be written is told. Whether a registry has it is not asked.
    support: full
  diff_mode:
    description: The Image before and after.
    support: full
options:
  folder:
    description:
      - Folder of the image, C(sha256-…) in a store.
    type: path
    required: true
  public_key:
    description:
      - Public key that it must be signed with, C(image.pub).
    type: path
    required: true
  store:
    description:
      - Image store into which it is copied, which a boot host serves; the one in which O(folder) lies if absent.
    type: path
  state:
    description:
      - V(present) is all there is.
    type: str
    choices: [present]
    default: present
  registry:
    description:
      - OCI registry to which it is pushed, C(oci://HOST/REPOSITORY).
    type: str
  registry_config:
    description:
      - File with names and passwords, as docker login writes it.
    type: path
  registry_ca:
    description:
      - CA of the registry's certificate (PEM); the system's if absent.
    type: path
  registry_plain_http:
    description:
      - Whether the registry is spoken to without TLS, and without a password.
    type: bool
    default: false
  registry_token_hosts:
    description:
      - Hosts beside the registry's own that may be given the password, to make tokens of it.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Publish an image on the one boot host
  provisioner.provisioner.image:
    folder: /srv/build/sha256-89c0123456780a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293
    public_key: /etc/provisioner/image.pub
    store: /srv/provisioner/images
  register: published

- name: Publish one that boot hosts pull
  provisioner.provisioner.image:
    folder: "{{ built }}"
    public_key: keys/image.pub
    registry: oci://registry.example.com/site/images
"""

RETURN = r"""
name:
  description: Name of the Image, for a NodePool's imageRef.
  returned: success
  type: str
  sample: gpu-node-89c012345678
digest:
  description: Digest of the image's manifest.
  returned: success
  type: str
pushed_bytes:
  description: Bytes that the registry lacked.
  returned: with registry, not in check mode
  type: int
remedy:
  description: What to do about a failure.
  returned: failure
  type: str
"""

from pathlib import Path
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    failures,
    find_object,
    make_module,
    open_cluster,
)


def publish(module: Any) -> dict[str, Any]:
    """Push, copy, apply; what is there is left. Raises: Refused or NotFound, before anything was written."""
    from provisioner.api import Image
    from provisioner.image.finished import store
    from provisioner.image.finished.check import check_image
    from provisioner.image.finished.publish import image_object, publish_image
    from provisioner.image.finished.sign import read_public_key

    params = module.params
    folder, cluster, key = Path(params["folder"]), open_cluster(module), read_public_key(Path(params["public_key"]))
    checked = check_image(folder, key)
    wanted = image_object(checked)
    target = Path(params["store"]) if params["store"] else folder.absolute().parent
    before = find_object(cluster, Image, wanted.name)
    in_store = (target / store.folder_name(checked.digest)).is_dir()
    changed = before is None or not in_store
    result = {"name": wanted.name, "digest": checked.digest}
    if not module.check_mode:
        if params["registry"]:
            result["pushed_bytes"], was_there = push(folder, key, params)
            changed = changed or not was_there
        if changed:
            publish_image(folder, target, key, cluster)
    header = f"Image {wanted.name}"
    after = f"digest: {checked.digest}\nstore: {target}\n"
    diff = {"before_header": header, "after_header": header, "before": after if not changed else "", "after": after}
    return result | {"changed": changed, "diff": diff}


def push(folder: Path, key: Any, params: dict[str, Any]) -> tuple[int, bool]:
    """Bytes that were sent, and whether the image was there already. Raises: the errors of the package."""
    from provisioner.cli.service.registry_options import access_of, opened
    from provisioner.image.registry.push import push_image
    from provisioner.image.registry.reference import parse_repository

    access = access_of(
        parse_repository(params["registry"]),
        registry_config=Path(params["registry_config"]) if params["registry_config"] else None,
        registry_ca=Path(params["registry_ca"]) if params["registry_ca"] else None,
        registry_plain_http=params["registry_plain_http"],
        registry_token_hosts=tuple(params["registry_token_hosts"]),
    )
    with opened(access) as registry:
        pushed = push_image(folder, registry, key)
    return pushed.sent_bytes, pushed.was_there


def main() -> None:
    module = make_module(DOCUMENTATION)
    with failures(module):
        module.exit_json(**publish(module))


if __name__ == "__main__":
    main()
