"""A new boot host with an empty disk: it pulls what its cluster needs from a real registry, serves it, and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.api import Image
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.conditions import find_condition
from provisioner.boot.host.service import BootCaches, BootService, BootSettings
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import of
from provisioner.image.finished.check import check_image
from provisioner.image.finished.publish import image_object
from provisioner.image.finished.sign import SecretKey
from provisioner.image.registry.access import open_access
from provisioner.image.registry.client import Registry
from provisioner.image.registry.push import push_image
from provisioner.image.registry.reference import parse_repository
from provisioner.image.registry.transport import RegistryTransport
from provisioner.image.retention.fill import StoreFiller
from tests.boot.conftest import Programs
from tests.boot.test_service import Host, free_port, wait_until
from tests.image.made_images import write_layered
from tests.image.registry.real_registry import real_registry

KEY = SecretKey.generate(lambda size: b"f" * size)


class FillingHost(Host):
    """A boot host that pulls."""

    registry: str = ""

    def start(self) -> None:
        caches = BootCaches.over(self.cluster)
        repository = parse_repository(self.registry)
        filler = StoreFiller(
            images=caches.images, servers=caches.servers, pools=caches.pools, store=self.settings.images,
            key=KEY.public, access=lambda: open_access(repository), registry=self.registry,
        )  # fmt: skip
        self.stop = threading.Event()
        self.service = BootService(
            self.settings, self.cluster, EventRecorder(self.cluster, "provisioner-boot"), caches=caches, filler=filler,
            enter=self.programs.enter,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.service.run, args=(self.stop,))
        self.thread.start()
        wait_until(self.answers, "the boot host answers")


def test_an_empty_disk_fills_itself_and_what_it_waits_for_is_said(
    programs: Programs, cluster: Cluster, account: Callable[[str], Cluster], unique: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    images = programs.shared / "images"
    images.mkdir()
    settings = BootSettings(
        address="127.0.0.1", state=programs.shared / "state", images=images, firmware=(programs.ipxe,), tftp=False,
        http_port=free_port("127.0.0.1"), join_port=free_port("127.0.0.1"), host=f"{unique}-host",
    )  # fmt: skip
    folder = write_layered(tmp_path / "built", KEY, recipe=unique)
    image = image_object(check_image(folder, KEY.public))
    host = FillingHost(settings, account("boot"), programs)

    def available() -> tuple[str, str]:
        condition = find_condition(cluster.read(Image, image.name).status.conditions, "Available")
        return (condition.status, condition.message) if condition is not None else ("", "")

    with real_registry(tmp_path / "registry", secured=False) as registry:
        host.registry = registry.address
        try:
            host.start()
            cluster.apply(encode(image), manager="tests")
            wait_until(lambda: "has no image" in available()[1], "the boot host says what it waits for")
            assert available()[0] == "False"
            assert f"push it: provisioner image push FOLDER {registry.address}" in available()[1]
            with RegistryTransport(open_access(parse_repository(registry.address))) as transport:
                push_image(folder, Registry(transport), KEY.public)
            wait_until(lambda: available()[0] == "True", "the image was pulled")
            assert f"'{unique}-host'" in available()[1]
            check_image(images / folder.name, KEY.public)
            for path in (image.spec.manifest.path, image.spec.layers[0].path):
                assert host.ask("GET", f"/images/{path}")[0] == 200
        finally:
            host.halt()
            cluster.delete(of(Image), image.name)
