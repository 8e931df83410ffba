"""Boot hosts and caches of the measurement: the real configurations of nginx, the real `provisioner cache`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lab.tools import Tools
from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from tests.benchmarks.swarm.network import Machine
from tests.signed_image import SignedImage

_PATIENCE: Final = 60.0
PROXY_CACHE: Final = """daemon off;
user www-data;
pid {run}/nginx.pid;
error_log stderr crit;
worker_processes 2;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {run}/body; proxy_temp_path {run}/proxy; fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
    proxy_cache_path {run}/kept keys_zone=kept:10m max_size=10g use_temp_path=off;
    server {{
        listen {address}:80 backlog=1024;
        location /images/ {{
            proxy_pass http://{boot_host};
            proxy_cache kept;
            proxy_cache_lock on;
            proxy_cache_lock_timeout 1h;
            proxy_cache_lock_age 1h;
            proxy_cache_valid 200 206 1d;
            {slices}
        }}
    }}
}}
"""
SLICES: Final = (
    "slice 1m; proxy_set_header Range $slice_range; proxy_cache_key $uri$slice_range; proxy_http_version 1.1;"
    ' proxy_set_header Connection "";'
)


def store_image(folder: Path, image: SignedImage) -> None:
    for path, content in image.served().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


@contextmanager
def boot_host(
    machine: Machine, tools: Tools, folder: Path, images: Path, *, slots: int = 10_000
) -> Iterator[subprocess.Popen[bytes]]:
    """A boot host's nginx; what it would ask the boot service fails, which servers take for no answer."""
    for name in ("scripts/ipxe", "tftp", "run", "log", "nginx"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    site = NginxSite(
        addresses=(machine.address,),
        scripts=folder / "scripts",
        firmware=folder / "tftp",
        firmware_files=("none.efi",),
        images=images,
        run=folder / "nginx",
        socket=folder / "run/answers.sock",
        access_log=folder / "log/access.json",
        user="www-data",
        workers="2",
        open_files=4096,
        image_slots=slots,
        requests_per_second=10_000,
    )
    configuration = folder / "nginx/nginx.conf"
    configuration.write_text(render_nginx(site))
    command = tools.command(nginx_command(site.run, configuration), [folder, images])
    with _running(machine, command, folder / "log/errors") as process:
        yield process


@contextmanager
def rack_cache(
    machine: Machine, tools: Tools, folder: Path, boot_hosts: Sequence[Machine]
) -> Iterator[subprocess.Popen[bytes]]:
    """`provisioner cache`, with what `folder` holds from before."""
    named = [word for host in boot_hosts for word in ("--boot-host", f"http://{host.address}")]
    own = ("--address", machine.address, "--state", str(folder), "--tools-root", str(tools.root))
    words = [sys.executable, "-m", "provisioner.cli", "cache", *own, *named, "--image-slots", "10000"]
    with _running(machine, words, folder.with_suffix(".log")) as process:
        _wait_for_health(machine)
        yield process


@contextmanager
def plain_proxy(
    machine: Machine, tools: Tools, folder: Path, boot_host: Machine, *, slices: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """An nginx with proxy_cache and its lock, of whole files or of slices."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o755)
    settings: dict[str, Any] = {"run": folder, "address": machine.address, "boot_host": boot_host.address}
    (folder / "nginx.conf").write_text(PROXY_CACHE.format(**settings, slices=SLICES if slices else ""))
    words = ["/usr/sbin/nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with _running(machine, tools.command(words, [folder]), folder / "errors") as process:
        yield process


def end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, as a machine that loses its power."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


@contextmanager
def _running(machine: Machine, words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as said:
        process = subprocess.Popen(machine.command(*words), stdout=said, stderr=said, process_group=0)
    try:
        wait_for_port(machine, process)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                end(process)
        end(process)


def wait_for_port(machine: Machine, process: subprocess.Popen[bytes], port: int = 80) -> None:
    """Until the machine listens on it. Raises: RuntimeError."""
    deadline = time.monotonic() + _PATIENCE
    while f":{port:04X} " not in _listening(machine):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{machine.name} does not listen; ended with {process.returncode}")
        time.sleep(0.05)


def _wait_for_health(machine: Machine) -> None:
    """nginx that only tests its configuration listens for a moment, too."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            read_health(machine)
            return
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{machine.name} does not answer") from error
            time.sleep(0.05)


def _listening(machine: Machine) -> str:
    said = _said(machine, "cat", "/proc/self/net/tcp")
    return "\n".join(line.split()[1] + " " for line in said.splitlines() if " 0A " in line)


def read_health(machine: Machine) -> str:
    """What the cache says of itself. Raises: CalledProcessError."""
    return _said(machine, "curl", "-sSf", "--max-time", "10", f"http://{machine.address}/healthz")


def _said(machine: Machine, *words: str) -> str:
    return subprocess.run(machine.command(*words), capture_output=True, text=True, check=True).stdout
