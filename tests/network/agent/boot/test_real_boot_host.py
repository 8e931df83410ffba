"""A host behind its DPU, and the boot service's own nginx and Flask behind that: nothing of either is played but what
lies in the cluster."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import waitress
from flask import Flask

from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.host.peer import RealPeer
from provisioner.boot.tftp.firmware import SERVED_FILES
from provisioner.join.admission.web import join_blueprint
from provisioner.network.agent.boot.image_cache import ImageCache
from provisioner.network.agent.boot.proxy import Proxy
from provisioner.network.agent.boot.server import BootServer
from tests.boot.conftest import Programs, programs
from tests.boot.test_web import BOOT
from tests.boot.test_web import World as BootWorld
from tests.join import samples
from tests.join.test_web import FakeJoinService
from tests.network.agent.boot.boot_host import FIRST_STAGE, IMAGE, KERNEL, MANIFEST, ROOT, STAGE1
from tests.network.agent.boot.site import BOOT_HOST, HOST_ADDRESS, SERVICES, Site, boots, told
from tests.network.agent.rack import Rack
from tests.network.agent.specs import ONE
from tests.node.fake_join_server import Authority
from tests.tools import installed

__all__ = ["programs"]


@dataclass
class Far:
    """What the boot host was told."""

    site: Site
    folder: Path
    boot: BootWorld
    join: FakeJoinService

    @property
    def mac(self) -> str:
        return self.site.host.mac

    def curl(self, *arguments: str) -> tuple[int, bytes]:
        out = self.folder / "out"
        command = [installed("curl"), "-s", "-m", "120", "-o", str(out), "-w", "%{http_code}"]
        ran = self.site.host.run(*command, "--interface", HOST_ADDRESS, *arguments)
        return int(ran.stdout or 0), out.read_bytes() if out.exists() else b""


@pytest.fixture
def far(network: Rack, programs: Programs) -> Iterator[Far]:
    site, folder = Site(network), programs.shared
    assert site.enforce(told(host_boot=boots())).agrees
    site.take_boot_address()
    for name in ("scripts/ipxe", "tftp", f".{IMAGE}", "run", "log", "nginx"):
        (folder / name).mkdir(parents=True)
    (folder / "scripts/boot.ipxe").write_text("#!ipxe\necho first\n")
    (folder / f"scripts/ipxe/{site.host.mac.replace(':', '-')}.ipxe").write_text("#!ipxe\necho its own\n")
    for name in SERVED_FILES:
        (folder / "tftp" / name).write_bytes(FIRST_STAGE)
    files = {"manifest": MANIFEST, "manifest.sig": b"x", "vmlinuz": KERNEL, "stage1.img": STAGE1, "root.squashfs": ROOT}
    for name, content in files.items():
        (folder / f".{IMAGE}" / name).write_bytes(content)
    authority = Authority.create()
    authority.server_context(folder, BOOT_HOST)
    (folder / "ca.pem").write_text(authority.pem())
    made = Far(site, folder, BootWorld(), FakeJoinService())
    with ExitStack() as stack:
        _serve(made, stack)
        nginx = NginxSite(
            addresses=(BOOT_HOST,), scripts=folder / "scripts", firmware=folder / "tftp", firmware_files=SERVED_FILES,
            images=folder / "images", run=folder / "nginx", socket=folder / "run/answers.sock",
            access_log=folder / "log/access.json", user="root", certificate=folder / "server.pem",
            key=folder / "server.pem", dpu_join_port=SERVICES.dpu_join_port, workers="1", open_files=512,
        )  # fmt: skip
        (folder / "nginx/nginx.conf").write_text(render_nginx(nginx))
        command = programs.enter(nginx_command(nginx.run, folder / "nginx/nginx.conf"))
        running = subprocess.Popen(site.far.command(*command), stderr=subprocess.DEVNULL)
        stack.callback(running.wait, 60)
        stack.callback(running.terminate)
        said: list[str] = []
        cache = ImageCache(folder / "cache", 64 << 20)
        cache.empty()
        server = BootServer(SERVICES, Proxy(SERVICES, cache, said.append), said.append)
        boot = site.dpu.inside(site.enforcer.boot)
        site.dpu.inside(lambda: server.serve(boot))
        stack.callback(server.stop)
        deadline = time.monotonic() + 180
        while made.curl(f"http://{BOOT_HOST}/boot.ipxe")[0] != 200:
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        yield made


def _serve(made: Far, stack: ExitStack) -> None:
    """The boot service's routes and the join's, on the socket that nginx asks."""
    application: Any = made.boot.client().application
    assert isinstance(application, Flask)
    application.register_blueprint(join_blueprint(made.join, is_known=lambda source: False))
    server = waitress.create_server(
        RealPeer(application), unix_socket=str(made.folder / "run/answers.sock"), unix_socket_perms="666",
        clear_untrusted_proxy_headers=False,
    )  # fmt: skip
    threading.Thread(target=server.run, daemon=True).start()
    stack.callback(server.close)


def test_a_host_fetches_reports_and_joins_through_its_dpu(far: Far) -> None:
    at = f"http://{BOOT_HOST}"
    assert far.curl(f"{at}/ipxe/{far.mac.replace(':', '-')}.ipxe?uuid=1") == (200, b"#!ipxe\necho its own\n")
    assert far.curl(f"{at}{IMAGE}/manifest") == (200, MANIFEST)
    for _ in range(2):
        status, root = far.curl(f"{at}{IMAGE}/root.squashfs")
        assert (status, hashlib.sha256(root).digest()) == (200, hashlib.sha256(ROOT).digest())
    assert far.curl("-r", "100-199", f"{at}{IMAGE}/stage1.img") == (206, STAGE1[100:200])
    assert far.curl("-d", f"mac={far.mac}&stage=Root&bootID={BOOT}", f"{at}/v1/progress")[0] == 204
    as_stage1 = ("busybox", "wget", "-q", "-O", "/dev/null", "--post-data")
    report = f"mac={far.mac}&stage=Stage1&bootID={BOOT}&message=a%20word"
    assert far.site.host.run(*as_stage1, report, f"{at}/v1/progress").returncode == 0
    assert [(each.mac, each.stage) for each in far.boot.reports] == [(far.mac, "Root"), (far.mac, "Stage1")]

    body = samples.body(macAddress=far.mac)
    as_json = ("-H", "Content-Type: application/json", "--data-binary", body.decode())
    join = f"https://{BOOT_HOST}:{SERVICES.join_port}/v1/join"
    assert far.curl(*as_json, join)[0] == 0, "a certificate of nobody that it knows is not believed"
    status, answer = far.curl("--cacert", str(far.folder / "ca.pem"), *as_json, join)
    assert status == 200
    assert json.loads(answer)["nodeName"] == "r01-u01"
    assert far.join.asked == [(samples.request(macAddress=far.mac), ONE, "by DPU")]


def test_firmware_loads_its_first_stage_by_tftp_from_what_nginx_has(far: Far) -> None:
    ran = far.site.host.run(
        installed("curl"), "-s", "-m", "120", "-o", str(far.folder / "nbp"), f"tftp://{BOOT_HOST}/snponly.efi"
    )
    assert ran.returncode == 0
    assert (far.folder / "nbp").read_bytes() == FIRST_STAGE
