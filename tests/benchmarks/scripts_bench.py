"""Boot scripts a second, as served: the boot host's whole nginx configuration against nginx's own limit.

`python -m tests.benchmarks.scripts_bench --wrk /usr/bin/wrk`. The bound is the same nginx, with the same number of
workers, and a configuration that does nothing but send these files: no log, no limits, no fallback. Both serve the same
10,000 scripts in random order over loopback; the two take turns. The generator shares the processors with nginx: only
the ratio says something.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.script.choose import Boot
from provisioner.boot.script.render import render_script
from provisioner.lab.control_plane.plane import free_port
from provisioner.lab.tools import Tools, obtain_tools

SCRIPTS: Final = 10_000
ADDRESS: Final = "127.0.0.1"

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
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrk", default=shutil.which("wrk") or "", help="the load generator wrk")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    options, _ = parser.parse_known_args(arguments)
    if not options.wrk:
        sys.exit("scripts_bench: wrk is missing; apt-get install wrk, or name it with --wrk")
    tools = obtain_tools(Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner")))
    with tempfile.TemporaryDirectory(prefix="scripts-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        seconds, size_bytes = write_scripts(folder / "scripts/ipxe")
        rates: dict[str, list[float]] = {"ours": [], "bound": []}
        for repetition in range(options.repetitions):
            for contender in ("ours", "bound") if repetition % 2 else ("bound", "ours"):
                with _serving(contender, folder, tools) as port:
                    rates[contender].append(_measure(options.wrk, folder, port, options.seconds))
                print(f"{repetition + 1} {contender}: {rates[contender][-1]:.0f}/s", file=sys.stderr, flush=True)
    write_table(rates, seconds, size_bytes, options)
    return 0


def write_scripts(folder: Path) -> tuple[float, int]:
    """Render the scripts as the boot service does; returns the seconds that it took and the size of one."""
    folder.mkdir(parents=True)
    image = "sha256-" + "9f" * 32
    began = time.monotonic()
    text = ""
    for number in range(SCRIPTS):
        octets = (number >> 16, number >> 8 & 255, number & 255)
        mac = "52:54:00:" + ":".join(f"{octet:02x}" for octet in octets)
        text = render_script(
            Boot(
                server=f"r{number // 40:03d}-u{number % 40:02d}",
                image="gpu-node-9f9f9f9f9f9f",
                kernel_url=f"http://10.80.0.1/images/{image}/vmlinuz",
                stage1_url=f"http://10.80.0.1/images/{image}/stage1.img",
                arguments=("initrd=stage1.img", f"provisioner.mac={mac}", f"provisioner.image={image}", "quiet"),
            )
        )
        (folder / f"{mac.replace(':', '-')}.ipxe").write_text(text)
    return time.monotonic() - began, len(text)


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
    nginx = subprocess.Popen(tools.command(nginx_command(site, configuration), binds=[folder]))
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


def write_table(rates: dict[str, list[float]], seconds: float, size_bytes: int, options: argparse.Namespace) -> None:
    """tests/benchmarks/results/scripts.md."""
    ratios = [ours / bound for ours, bound in zip(rates["ours"], rates["bound"], strict=True)]
    rows = [
        "## Boot scripts a second, as served",
        "",
        f"{SCRIPTS:,} scripts of {size_bytes} bytes in random order over loopback, wrk with 64 connections on the "
        f"same processors, {options.repetitions} × {options.seconds} s each, taking turns. Median (least to most). "
        "The bound is the same nginx sending the same files with a configuration that does nothing else.",
        "",
        "| server | scripts/s | ratio to the bound |",
        "|---|---|---|",
        f"| boot host's configuration | {_spread(rates['ours'])} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) |",
        f"| nginx's own limit | {_spread(rates['bound'])} | 1 |",
        "",
        f"Rendering and writing the {SCRIPTS:,} scripts took {seconds:.1f} s, once.",
        "",
    ]
    target = Path(__file__).parent / "results" / "scripts.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(rows))
    print("\n".join(rows))


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    sys.exit(main())
