"""An image for every server of a rack at once: last finisher against the link's floor, and bytes from the boot host.

`python -m tests.benchmarks.swarm_bench` as root. Servers, a boot host or two and a cache are network namespaces on one
switch, each on a link of its own speed (tbf). Servers run the real stage-1 up to verified layers; boot hosts run nginx
with a boot host's configuration; the cache is `provisioner cache`. Beside them, in the same run and on the same links:
the boot host alone, nginx's own proxy_cache, and aria2 with the boot host as web seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.tools import Tools, obtain_tools
from provisioner.boot.cache.service import STATUS_SECONDS
from provisioner.image.finished.sign import SecretKey
from tests.benchmarks.record import Goal, begin, spread
from tests.benchmarks.swarm import aria2
from tests.benchmarks.swarm.network import Machine, Rack
from tests.benchmarks.swarm.servers import Finished, Stage1Tree
from tests.benchmarks.swarm.sources import boot_host, end, plain_proxy, rack_cache, read_health, store_image
from tests.signed_image import SignedImage, layered_image

GOALS: Final[dict[str, Goal]] = {}
HIGH: Final = 1 << 40


@dataclass
class Measured:
    """last: seconds of the last finisher; mean: of all; sent: bytes from the boot hosts, in images."""

    last: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def add(self, seconds: Sequence[float], sent: float) -> None:
        self.last.append(max(seconds))
        self.mean.append(statistics.fmean(seconds))
        self.sent.append(sent)


@dataclass
class Bench:
    """One network, one image, and folders."""

    options: argparse.Namespace
    tools: Tools
    work: Path
    image: SignedImage
    tree: Stage1Tree
    floors: list[float] = field(default_factory=list)
    table: dict[tuple[str, int], Measured] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        wide = self.options.megabits * self.options.boot_host_links
        self.one, self.two = Machine("boot1", 1, wide), Machine("boot2", 2, wide)
        self.cache = Machine("cache", 3, self.options.megabits * self.options.cache_links)
        self.servers = [Machine(f"s{n:03}", 10 + n, self.options.megabits) for n in range(max(self.options.servers))]
        self.store, self.false = self.work / "store", self.work / "false"
        self.size = sum(len(content) for content in self.image.layers.values())

    def boot(self, count: int, *sources: Machine, least_rate: int = 1000) -> list[Finished]:
        """`sources` in turn; the last one is the boot host."""
        urls = [f"http://{source.address}/images" for source in sources]
        boot_host = f"http://{sources[-1].address}"
        return self.tree.boot(self.servers[:count], self.image, boot_host, urls, least_rate)

    def measure(self, name: str, count: int, rack: Rack, boot: Callable[[], list[float]]) -> None:
        before = rack.bytes_from(self.one) + rack.bytes_from(self.two)
        seconds = boot()
        sent = rack.bytes_from(self.one) + rack.bytes_from(self.two) - before
        self.table.setdefault((name, count), Measured()).add(seconds, sent / self.size)
        print(f"{name}, {count}: last {max(seconds):.1f} s, {sent / self.size:.2f} images", file=sys.stderr, flush=True)

    def empty_cache(self) -> Path:
        folder = self.work / "cache"
        shutil.rmtree(folder, ignore_errors=True)
        return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=12, help="of the image")
    parser.add_argument("--megabits", type=float, default=20, help="of a server's link")
    parser.add_argument("--boot-host-links", type=float, default=4, help="of a boot host's link, in servers' links")
    parser.add_argument("--cache-links", type=float, default=32, help="of the cache's link, in servers' links")
    parser.add_argument("--slots", type=int, default=8, help="of the boot host that is full")
    options, _ = parser.parse_known_args(arguments)
    run = begin("swarm")
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    tools = obtain_tools(Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner")))
    with tempfile.TemporaryDirectory(prefix="provisioner-swarm-", dir="/dev/shm") as folder:
        work = Path(folder)
        work.chmod(0o755)
        bench = prepare(options, tools, work)
        with Rack([bench.one, bench.two, bench.cache, *bench.servers]) as rack:
            measure_all(bench, rack)
    return run.finish(render(bench), [], options.repetitions)


def prepare(options: argparse.Namespace, tools: Tools, work: Path) -> Bench:
    key = SecretKey.generate(os.urandom)
    whole = int(options.megabytes * 1e6)
    sizes = {"base": whole * 55 // 100, "driver": whole * 35 // 100, "site": whole // 10}
    image = layered_image({name: os.urandom(size) for name, size in sizes.items()}, key=key, release=os.uname().release)
    bench = Bench(options, tools, work, image, Stage1Tree(work / "tree", tools, key))
    store_image(bench.store, image)
    store_image(bench.false, image)
    lie = bench.false / image.path("base")
    lie.write_bytes(bytes([lie.read_bytes()[0] ^ 1]) + lie.read_bytes()[1:])
    return bench


def measure_all(bench: Bench, rack: Rack) -> None:
    for repetition in range(bench.options.repetitions):
        measure_floor(bench)
        for count in bench.options.servers:
            measure_ways(bench, rack, count)
        if repetition == 0:
            tell_stories(bench, rack, min(16, max(bench.options.servers)))


def measure_floor(bench: Bench) -> None:
    """One server alone, with the cache warm: what its own link allows."""
    with (
        boot_host(bench.one, bench.tools, bench.work / "boot1", bench.store),
        rack_cache(bench.cache, bench.tools, bench.empty_cache(), [bench.one]),
    ):
        bench.boot(1, bench.cache, bench.one)
        bench.floors.append(bench.boot(1, bench.cache, bench.one)[0].seconds)
        print(f"floor: {bench.floors[-1]:.1f} s", file=sys.stderr, flush=True)


def measure_ways(bench: Bench, rack: Rack, count: int) -> None:
    def stage1(*sources: Machine) -> Callable[[], list[float]]:
        return lambda: [each.seconds for each in bench.boot(count, *sources)]

    with boot_host(bench.one, bench.tools, bench.work / "boot1", bench.store):
        bench.measure("boot host alone", count, rack, stage1(bench.one))
        with rack_cache(bench.cache, bench.tools, bench.empty_cache(), [bench.one]):
            bench.measure("`provisioner cache`, empty", count, rack, stage1(bench.cache, bench.one))
            bench.measure("`provisioner cache`, full", count, rack, stage1(bench.cache, bench.one))
        for name, slices in (("nginx proxy_cache, empty", False), ("nginx proxy_cache in slices, empty", True)):
            with plain_proxy(bench.cache, bench.tools, bench.work / "proxy", bench.one, slices=slices):
                bench.measure(name, count, rack, stage1(bench.cache, bench.one))
        with aria2.tracker(bench.one):
            bench.measure("aria2 with web seed", count, rack, lambda: download(bench, count))


def download(bench: Bench, count: int) -> list[float]:
    """The layers as one file, as aria2 has them best."""
    content = b"".join(bench.image.layers.values())
    name = f"sha256-{hashlib.sha256(content).hexdigest()}"
    (bench.store / "parts" / name).write_bytes(content)
    seed = f"http://{bench.one.address}/images/parts/{name}"
    announce = f"http://{bench.one.address}:{aria2.TRACKER_PORT}/announce"
    torrent = bench.work / "image.torrent"
    torrent.write_bytes(aria2.make_torrent(content, name, seed, announce))
    return aria2.download(bench.servers[:count], torrent, content, bench.work / "aria2")


def tell_stories(bench: Bench, rack: Rack, count: int) -> None:
    """What goes wrong, once each."""

    def tell(name: str, seconds: Sequence[float], words: str) -> None:
        bench.stories.append(f"| {name} | {max(seconds):.1f} | {max(seconds) / bench.floors[-1]:.2f} | {words} |")
        print(bench.stories[-1], file=sys.stderr, flush=True)

    two_hosts = (
        lambda: boot_host(bench.one, bench.tools, bench.work / "boot1", bench.store),
        lambda: boot_host(bench.two, bench.tools, bench.work / "boot2", bench.store),
    )
    with (
        two_hosts[0]() as dying,
        two_hosts[1](),
        rack_cache(bench.cache, bench.tools, bench.empty_cache(), [bench.one, bench.two]),
    ):
        before = rack.bytes_from(bench.one)
        killer = threading.Thread(target=kill_midway, args=(bench, rack, before, lambda: end(dying)))
        killer.start()
        booted = bench.boot(count, bench.cache, bench.two)
        killer.join()
        noticed = [
            each.said.partition("observed")[2].splitlines()[0].strip() for each in booted if "observed" in each.said
        ]
        words = f"{len(noticed)} of {count} servers noticed" + (f", as {noticed[0]}" if noticed else "")
        tell("boot host ends midway, the cache knows a second one", seconds_of(booted), words)
    with two_hosts[0](), rack_cache(bench.cache, bench.tools, bench.empty_cache(), [bench.one]) as dying:
        before = rack.bytes_from(bench.cache)
        killer = threading.Thread(
            target=kill_midway, args=(bench, rack, before, lambda: end(dying), bench.cache, count)
        )
        killer.start()
        booted = bench.boot(count, bench.cache, bench.one)
        killer.join()
        resumed = sum("going on after" in each.said for each in booted)
        tell("cache ends midway", seconds_of(booted), f"{resumed} of {count} servers went on at the boot host")
    with (
        boot_host(bench.one, bench.tools, bench.work / "boot1", bench.false),
        two_hosts[1](),
        rack_cache(bench.cache, bench.tools, bench.empty_cache(), [bench.one, bench.two]),
    ):
        booted = bench.boot(count, bench.cache, bench.two)
        time.sleep(STATUS_SECONDS + 1)
        named = {each["bootHost"] for each in json.loads(read_health(bench.cache))["refusals"]}
        right = named == {f"http://{bench.one.address}:80"}
        words = "the cache named it, and it alone" if right else f"named: {', '.join(named) or 'nobody'}"
        tell("boot host lies, the cache knows a second one", seconds_of(booted), words)
    with boot_host(bench.cache, bench.tools, bench.work / "liar", bench.false), two_hosts[0]():
        booted = bench.boot(count, bench.cache, bench.one)
        lie = f"http://{bench.cache.address}/images/{bench.image.path('base')}"
        named_by = sum(f"object    {lie}" in each.said and "altered" in each.said for each in booted)
        tell("cache lies", seconds_of(booted), f"named by {named_by} of {count} servers")
    fair = int(bench.one.megabits * 125_000 / bench.options.slots / 2)
    for slots, name in ((10_000, "no slots"), (bench.options.slots, f"{bench.options.slots} slots")):
        with boot_host(bench.one, bench.tools, bench.work / "boot1", bench.store, slots=slots):
            everybody = max(bench.options.servers)
            booted = bench.boot(everybody, bench.one, least_rate=fair)
            gave_up = sum(each.said.count("not booted") for each in booted)
            waits = sum(each.said.count("waiting for room") for each in booted)
            mean = statistics.fmean(seconds_of(booted))
            tell(
                f"{everybody} servers at the boot host alone, {name}",
                seconds_of(booted),
                f"mean {mean:.1f} s; given up as slow {gave_up} times, waited for room {waits} times",
            )


def kill_midway(
    bench: Bench, rack: Rack, before: int, kill: Callable[[], None], of: Machine | None = None, images: int = 1
) -> None:
    """Once half of what is to be sent was."""
    deadline = time.monotonic() + 120
    while rack.bytes_from(of or bench.one) - before < bench.size * images // 2:
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    kill()


def seconds_of(booted: Sequence[Finished]) -> list[float]:
    return [each.seconds for each in booted]


def render(bench: Bench) -> str:
    """The section of RESULTS.md."""
    options, floor = bench.options, statistics.median(bench.floors)
    ideal = bench.size * 8 / (options.megabits * 1e6)
    lines = [
        "## An image for every server of a rack at once",
        "",
        f"{bench.size / 1e6:.0f} MB in three layers; servers at {options.megabits:g} Mbit/s, the boot host at "
        f"{bench.one.megabits:g}, the rack's cache at {bench.cache.megabits:g}, shaped by tbf in network namespaces; "
        "repetitions take turns. Servers are the real stage-1 up to verified layers (aria2: the "
        "same bytes as one file, hashed by pieces). One server alone, of a full cache: "
        f"{spread(bench.floors)} s; {ideal:.1f} s is the bare link. Seconds of the last finisher, its ratio to the "
        "median of one alone, and images that left the boot host; median (least to most).",
        "",
        "| way | servers | last, s | ratio | mean, s | images from the boot host |",
        "|---|---|---|---|---|---|",
    ]
    for (name, count), measured in bench.table.items():
        ratios = [last / floor for last in measured.last]
        lines.append(
            f"| {name} | {count} | {spread(measured.last)} | {spread(ratios, '.2f')} | {spread(measured.mean)} | "
            f"{spread(measured.sent, '.2f')} |"
        )
    count = min(16, max(options.servers))
    lines += [
        "",
        f"What goes wrong, once each, with {count} servers where no other number is named:",
        "",
        "| what | last, s | ratio | what came of it |",
        "|---|---|---|---|",
        *bench.stories,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
