"""Boot scripts a second, as written and served: the boot host's renderer and its whole nginx configuration.

`python -m tests.benchmarks.scripts_bench --wrk /usr/bin/wrk`. The renderer of `provisioner boot` runs over caches of
10,000 servers and writes their scripts; nginx serves them in random order over loopback, while nothing changes, and
while the image of all servers changes again and again. The bound is the same nginx with the same number of workers and
a configuration that does nothing but send these files: no log, no limits, no fallback. They take turns. The generator
shares the processors with nginx: only the ratio says something. The caches are filled by hand, without an API server.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lab.control_plane.ports import free_port
from lab.tools import Tools, obtain_tools
from provisioner.api.servers.server import Server, ServerStatus
from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.script.renderer import ScriptRenderer
from tests.benchmarks.record import Goal, begin, ratios, say, spread
from tests.boot.fake_source import FakeSource
from tests.boot.objects import URLS, image, pool, rack, server

SCRIPTS: Final = 10_000
ADDRESS: Final = "127.0.0.1"
GOALS: Final[dict[str, Goal]] = {}

_BARE: Final = """daemon off; user www-data; pid {run}/nginx.pid; error_log stderr warn; worker_processes auto;
worker_rlimit_nofile 4096; events {{ worker_connections 2048; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000;
  client_body_temp_path {run}/body; proxy_temp_path {run}/proxy; fastcgi_temp_path {run}/fastcgi;
  uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
  server {{ listen {address}:{port} backlog=4096; root {scripts}; default_type text/plain; }} }}
"""

_LUA: Final = """math.randomseed(os.time())
request = function()
  local n = math.random(0, {last})
  return wrk.format("GET", string.format("/ipxe/52-54-00-%02x-%02x-%02x.ipxe", n / 65536, n / 256 % 256, n % 256))
end
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrk", default=shutil.which("wrk") or "", help="the load generator wrk")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    options, _ = parser.parse_known_args(arguments)
    run = begin("scripts")
    if not options.wrk:
        sys.exit("scripts_bench: wrk is missing; apt-get install wrk, or name it with --wrk")
    tools = obtain_tools(Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner")))
    with tempfile.TemporaryDirectory(prefix="scripts-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        rates: dict[str, list[float]] = {"ours": [], "busy": [], "bound": []}
        with Fleet(folder / "scripts") as fleet:
            for repetition in range(options.repetitions):
                for contender in sorted(rates, reverse=repetition % 2 == 1):
                    with _serving(contender, folder, tools) as port, fleet.changing(active=contender == "busy"):
                        rates[contender].append(_measure(options.wrk, folder, port, options.seconds))
                    say(f"{repetition + 1} {contender}: {rates[contender][-1]:.0f}/s")
            single = sorted(fleet.seconds_to_change_one(number) for number in range(100))
        written = Written(
            fleet.script(0).stat().st_size, fleet.first_seconds, fleet.processor_seconds, fleet.all_seconds, single
        )
        text = table(rates, written, options.seconds)
    return run.finish(text, [], options.repetitions)


@dataclass(frozen=True)
class Written:
    """What the renderer took. script_bytes: of one; single: seconds to change each of 100 scripts, sorted."""

    script_bytes: int
    first_seconds: float
    processor_seconds: float
    all_seconds: Sequence[float]
    single: Sequence[float]


class Fleet:
    """10,000 servers in caches, and the boot service's own renderer at work on them while its block runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers = FakeSource(*(self._server(number) for number in range(SCRIPTS)))
        self._images = FakeSource(image())
        index = ServerIndex(self._servers)
        self._renderer = ScriptRenderer(
            index, pools=FakeSource(pool()), images=self._images, racks=FakeSource(rack()), urls=URLS, folder=folder
        )
        index.attach()
        self._renderer.attach()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renderer.run, args=(self._stop,))
        self.first_seconds = 0.0
        """From an empty disk to all scripts."""
        self.processor_seconds = 0.0
        """That the renderer's thread has taken for it, user and system."""
        self.all_seconds: list[float] = []
        """From a changed image in the cache to the last of the scripts on disk."""

    def script(self, number: int) -> Path:
        return self.folder / "ipxe" / f"{_mac(number).replace(':', '-')}.ipxe"

    @contextmanager
    def changing(self, *, active: bool) -> Iterator[None]:
        """Change the image of all servers as soon as the former change is written, again and again; the last one is
        written when this ends."""
        done = threading.Event()

        def change() -> None:
            while not done.is_set():
                mark, began = f"mark={time.monotonic_ns()}", time.monotonic()
                self._images.put(image(kernel_arguments=("quiet", mark)))
                waiting = list(range(SCRIPTS))
                while waiting:
                    if mark in self.script(waiting[-1]).read_text():
                        waiting.pop()
                    else:
                        time.sleep(0.02)
                self.all_seconds.append(time.monotonic() - began)

        thread = threading.Thread(target=change)
        if active:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if active:
                thread.join()

    def seconds_to_change_one(self, number: int) -> float:
        """From a changed server in the cache to its script on disk."""
        before, began = self.script(number).read_text(), time.monotonic()
        self._servers.put(self._server(number, address=f"10.80.{1 + (number >> 8)}.{number & 255}"))
        while self.script(number).read_text() == before:
            if time.monotonic() - began > 60:
                sys.exit("scripts_bench: the renderer does not write")
            time.sleep(0.0002)
        return time.monotonic() - began

    @staticmethod
    def _server(number: int, address: str = "10.80.0.21") -> Server:
        status = ServerStatus(address=address, subnet_name="boot", assigned_image_ref=image().name)
        return server(f"r{number // 40:03d}-u{number % 40:02d}", status=status, boot_mac_address=_mac(number))

    def __enter__(self) -> Self:
        began = time.monotonic()
        self._thread.start()
        while not self._renderer.ready:
            time.sleep(0.01)
        self.first_seconds = time.monotonic() - began
        assert self._thread.ident is not None
        self.processor_seconds = time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
        if "kernel" not in self.script(SCRIPTS - 1).read_text():
            sys.exit("scripts_bench: the scripts boot nothing")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._renderer.wake()
        self._thread.join()


def _mac(number: int) -> str:
    return f"52:54:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"


@contextmanager
def _serving(contender: str, folder: Path, tools: Tools) -> Iterator[int]:
    port = free_port(ADDRESS)
    run = folder / f"run-{contender}"
    run.mkdir(exist_ok=True)
    for name in ("firmware", "images"):
        (folder / name).mkdir(exist_ok=True)
    site = NginxSite(
        addresses=(ADDRESS,),
        scripts=folder / "scripts",
        firmware=folder / "firmware",
        firmware_files=("snponly.efi",),
        images=folder / "images",
        run=run,
        socket=folder / "answers.sock",
        access_log=run / "access.json",
        user="www-data",
        http_port=port,
        open_files=4096,
    )
    text = render_nginx(site)
    if contender == "bound":
        text = _BARE.format(run=run, address=ADDRESS, port=port, scripts=folder / "scripts")
    configuration = run / "nginx.conf"
    configuration.write_text(text)
    nginx = subprocess.Popen(tools.command(nginx_command(site.run, configuration), binds=[folder]))
    try:
        _wait_for(port, nginx)
        yield port
    finally:
        nginx.terminate()
        nginx.wait(20)


def _wait_for(port: int, nginx: subprocess.Popen[bytes]) -> None:

    deadline = time.monotonic() + 20
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((ADDRESS, port)) == 0:
                return
        if nginx.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"scripts_bench: nginx does not listen (status {nginx.poll()})")
        time.sleep(0.05)


def _measure(wrk: str, folder: Path, port: int, seconds: int) -> float:
    script = folder / "random.lua"
    script.write_text(_LUA.format(last=SCRIPTS - 1))
    command = [wrk, "-t1", "-c64", f"-d{seconds}s", "-s", str(script), f"http://{ADDRESS}:{port}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        sys.exit(f"scripts_bench: not every request was answered:\n{said}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", said)
    assert found, said
    return float(found[1])


def table(rates: dict[str, list[float]], written: Written, seconds: int) -> str:
    rows = [
        "## Boot scripts a second, as written and served",
        "",
        f"{SCRIPTS:,} scripts of {written.script_bytes} bytes, written by the boot service's renderer, in "
        f"random order over loopback, wrk with 64 connections on the same processors, {seconds} s each, taking turns. "
        "Median (least to most). "
        "The bound is the same nginx sending the same files with a configuration that does nothing else.",
        "",
        "| server | scripts/s | ratio to the bound |",
        "|---|---|---|",
    ]
    for contender, words in (
        ("ours", "boot host's configuration"),
        ("busy", "the same, while the image of all servers changes"),
        ("bound", "nginx's own limit"),
    ):
        to_bound = spread(ratios(rates[contender], rates["bound"]), ".2f")
        rows.append(f"| {words} | {spread(rates[contender], ',.0f')} | {to_bound} |")
    rows += [
        "",
        f"From an empty disk to {SCRIPTS:,} scripts: {written.first_seconds:.1f} s, of the processor "
        f"{1e6 * written.processor_seconds / SCRIPTS:.0f} µs a script, once. From a changed server to its script: "
        f"{1000 * statistics.median(written.single):.1f} ms, 99 of 100 within {1000 * written.single[98]:.1f} ms. "
        f"From a changed image to all scripts, under that load: {spread(written.all_seconds)} s.",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
