"""The page of a fleet of 10,000 servers: how fast it is there, what a change costs, and what a storm of changes does.

`python -m tests.benchmarks.web_bench --servers 10000 --api-servers 400 --viewers 50`. Twice the same: the service with
10,000 servers in its memory (`tests/web/serve_fake.py`), changed faster than any API server could tell; and
`provisioner web` as it is shipped beside a real API server, by its own account, with as many Servers and Nodes as are
written there in reasonable time. Chromium opens the page. Bounds, in the same run: what it takes to read the same
objects from the API server and make nothing of them, and what a bare waitress takes to send the page's very bytes.

Emulated: there is no controller, no kubelet and no BMC: the benchmark itself writes what they would.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import urllib3
import waitress.server
from playwright.sync_api import Page

from lab.binaries.obtain import find_binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, NodePool, Rack, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from tests.benchmarks.bare_writes import seconds_of_writes
from tests.benchmarks.processor_time import ProcessorTime
from tests.benchmarks.record import Check, Goal, begin, say, spread
from tests.conftest import install
from tests.people import kubeconfig_of, of_account, until
from tests.tools import CACHE
from tests.web.browser import a_browser
from tests.web.made_up_fleet import MadeUpFleet, make_fleet, server_name

TIMES: Final = 5
STORM_LIMIT_SECONDS: Final = 300
STATE_OF: Final = {"Held": "held", "Verified": "kept"}
"""What the page makes of the lifecycles that a storm writes."""
GOALS: Final = {
    "first_paint": Goal("s to the browser's first contentful paint", 2.0),
    "ready": Goal("s until the page is usable", 3.0),
    "packed": Goal("bytes of the fleet's page, packed", 400_000),
    "seen": Goal("s from a change's write to the tile", 2.5),
    "viewers": Goal("processor time of a storm before many viewers, to that before one", 2.0),
    "long_task": Goal("ms of the browser's longest task in both storms", 500),
}


@dataclass
class Storm:
    """Every server changes once. Seconds, bytes of one viewer, processor seconds of `provisioner web`."""

    viewers: int
    writes: float
    shown_after: float
    processor: float
    frames: int
    received: int
    most_a_second: int


@dataclass
class Figures:
    """Seconds, bytes, MiB."""

    servers: int
    listed: tuple[float, int] | None
    started: float
    memory_mib: float
    packed: int = 0
    whole: int = 0
    first_page: float = 0.0
    page: list[float] = field(default_factory=list)
    page_bound: list[float] = field(default_factory=list)
    first_paint: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    ready_bound: list[float] = field(default_factory=list)
    key: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    server_page: list[float] = field(default_factory=list)
    pool_page: float = 0.0
    storms: list[Storm] = field(default_factory=list)
    long_task: float = 0.0
    memory_after_mib: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=10_000, help="in the memory of the service")
    parser.add_argument("--api-servers", type=int, default=400, help="in a real API server")
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    run = begin("web")
    fakes, real = list[Figures](), list[Figures]()
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory(prefix="web-bench-") as folder:
            fakes.append(measure(a_fake(options.servers), options.viewers))
            real.append(measure(an_api_server(options.api_servers, Path(folder)), options.viewers))
    text = "\n".join([table(fakes), table(real)])
    return run.finish(text, [*check_goals(fakes), *check_goals(real)], options.repetitions)


@dataclass(frozen=True, kw_only=True)
class Feed:
    """A service that runs, and how its servers are changed: one, or all of them. listed: seconds and bytes of reading
    all objects, where they are in an API server."""

    pid: int
    url: str
    names: Sequence[str]
    started: float
    change: Callable[[str, str], object]
    change_all: Callable[[str], object]
    listed: tuple[float, int] | None


def measure(made: AbstractContextManager[Feed], viewers: int) -> Figures:
    with made as feed, a_browser() as browser:
        figures = Figures(len(feed.names), feed.listed, feed.started, memory_of(feed.pid))
        of_pages(figures, feed.url)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(STORM_LIMIT_SECONDS * 1000)
        of_browser(figures, page, feed)
        for number, lifecycle in ((1, "Held"), (viewers, "Verified")):
            say(f"storm of {len(feed.names)} before {number} viewers")
            figures.storms.append(a_storm(feed, lifecycle, number))
        figures.long_task = float(page.evaluate("() => Math.max(0, ...globalThis.longTasks)"))
        figures.memory_after_mib = memory_of(feed.pid)
    return figures


@contextmanager
def a_fake(servers: int) -> Iterator[Feed]:
    command = [sys.executable, "-m", "tests.web.serve_fake", str(servers), "18081"]
    url, began = "http://127.0.0.1:18081", time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_for(url, process)
        started, orders, answers = time.monotonic() - began, process.stdin, process.stdout

        def change(name: str, lifecycle: str) -> None:
            orders.write(f"{name} {lifecycle}\n")
            while (line := answers.readline()) and not line.startswith(f"{name} "):
                pass  # what it logs
            assert line, "it ended"

        names = [server_name(number) for number in range(servers)]
        yield Feed(
            pid=process.pid, url=url, names=names, started=started, change=change,
            change_all=lambda lifecycle: change("*", lifecycle), listed=None,
        )  # fmt: skip
        process.terminate()


@contextmanager
def an_api_server(servers: int, folder: Path) -> Iterator[Feed]:
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    with ControlPlane(folder / "plane", binaries, node_grace="1h") as plane:
        os.kill(plane.pids()["kube-controller-manager"], signal.SIGTERM)
        cluster = Cluster.connect(plane.kubeconfig, user_agent="web-bench")
        install(cluster)
        fleet = make_fleet(servers, now=datetime.now(UTC))
        fill(plane.kubeconfig, fleet)
        listed = read_all(cluster)
        names = [body["metadata"]["name"] for body in fleet.servers]
        account = kubeconfig_of(plane, folder, of_account("web"))
        with web(account, folder) as (process, url, started):
            yield Feed(
                pid=process.pid, url=url, names=names, started=started, listed=listed,
                change=lambda name, lifecycle: change(cluster, name, lifecycle),
                change_all=lambda lifecycle: seconds_of_writes(
                    plane.kubeconfig, names, lambda client, name: change(client, name, lifecycle)
                ),
            )  # fmt: skip


def fill(kubeconfig: Path, fleet: MadeUpFleet) -> None:
    """All objects, with their status."""
    began = time.monotonic()

    def write(client: Cluster, item: tuple[Any, dict[str, Any]]) -> None:
        kind, body = item
        client.create(kind, {"apiVersion": "v1", "kind": kind.kind, **body})
        if "status" in body and kind != NODES:
            client.patch(kind, body["metadata"]["name"], {"status": body["status"]}, subresource="status")

    for kind, bodies in (
        (of(Image), fleet.images), (of(NodePool), fleet.pools), (of(Rack), fleet.racks), (of(Server), fleet.servers),
        (NODES, fleet.nodes),
    ):  # fmt: skip
        seconds_of_writes(kubeconfig, [(kind, body) for body in bodies], write)
        say(f"{len(bodies)} {kind.plural} after {time.monotonic() - began:.0f} s")


def read_all(cluster: Cluster) -> tuple[float, int]:
    """Seconds for reading Servers and Nodes as they are, in pages, as parsed JSON; and how many bytes that is."""
    began = time.monotonic()
    items = [item for kind in (of(Server), NODES) for item in cluster.list(kind).items]
    return time.monotonic() - began, sum(len(json.dumps(item, separators=(",", ":"))) for item in items)


@contextmanager
def web(kubeconfig: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    """The command; seconds until it was ready."""
    arguments = ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:18080", "--authentication", "none"]
    with (folder / "web.log").open("wb") as log:
        began = time.monotonic()
        command = [sys.executable, "-m", "provisioner.cli", "web", *arguments, "--viewers", "200"]
        process = subprocess.Popen(command, stderr=log)
        try:
            wait_for("http://127.0.0.1:18080", process)
            yield process, "http://127.0.0.1:18080", time.monotonic() - began
        finally:
            process.terminate()
            process.wait(60)


def wait_for(url: str, process: subprocess.Popen[Any]) -> None:
    """Until it is ready."""
    while True:
        assert process.poll() is None, "it ended"
        with suppress(urllib3.exceptions.HTTPError):
            if urllib3.request("GET", f"{url}/readyz", retries=False, timeout=5).status == 200:
                return
        time.sleep(0.05)


def memory_of(pid: int) -> float:
    """MiB that are resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def of_pages(figures: Figures, url: str) -> None:
    """Time and size of the fleet's page, the same bytes sent by a bare waitress, and other pages."""

    def get(address: str) -> tuple[float, bytes]:
        began = time.monotonic()
        headers = {"Accept-Encoding": "gzip"}
        answer = urllib3.request("GET", address, headers=headers, decode_content=False, timeout=60)
        assert answer.status == 200, answer.data
        return time.monotonic() - began, answer.data

    figures.first_page, packed = get(f"{url}/")
    figures.packed = len(packed)
    figures.whole = len(urllib3.request("GET", f"{url}/", timeout=60).data)
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Encoding", "gzip")]
    with bare(packed, headers) as bound:
        for _ in range(TIMES):
            figures.page.append(get(f"{url}/")[0])
            figures.page_bound.append(get(bound)[0])
            figures.server_page.append(get(f"{url}/servers/r01-u16")[0])
    figures.pool_page = get(f"{url}/pools/gpu")[0]


@contextmanager
def bare(body: bytes, headers: list[tuple[str, str]]) -> Iterator[str]:
    """A server that sends these bytes, whatever is asked for."""

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [*headers, ("Content-Length", str(len(body)))])
        return [body]

    server = waitress.server.create_server(app, host="127.0.0.1", port=0)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}/"
    server.trigger.pull_trigger(server.close)


WATCHED: Final = """
  globalThis.longTasks = [];
  new PerformanceObserver((list) => globalThis.longTasks.push(...list.getEntries().map((e) => e.duration)))
    .observe({ type: "longtask", buffered: true });
  new MutationObserver(() => { globalThis.readyAt ??= performance.now(); })
    .observe(document, { attributes: true, attributeFilter: ["data-ready"], subtree: true });
"""


def of_browser(figures: Figures, page: Page, feed: Feed) -> None:
    page.add_init_script(WATCHED)
    for _ in range(TIMES):
        page.goto(f"{feed.url}/")
        page.wait_for_function("() => globalThis.readyAt !== undefined")
        figures.ready.append(page.evaluate("() => globalThis.readyAt") / 1000)
        paints = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
        figures.first_paint.append(page.evaluate(paints) / 1000)
    page.wait_for_function("() => document.getElementById('live').textContent === 'Live'")
    page.locator("#elevations .s").first.focus()
    for key in ("ArrowDown", "ArrowRight", "End", "ArrowUp", "Home"):
        took = """(key) => { const began = performance.now();
          document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
          document.activeElement.getBoundingClientRect(); return performance.now() - began; }"""
        figures.key.append(page.evaluate(took, key) / 1000)
    page.evaluate("() => { globalThis.longTasks = []; }")
    for number in range(TIMES):
        name, began = feed.names[len(feed.names) // 2 + number], time.monotonic()
        feed.change(name, "Held")
        page.wait_for_function(f"() => document.getElementById('s-{name}').classList.contains('held')")
        figures.seen.append(time.monotonic() - began)


def change(cluster: Cluster, name: str, lifecycle: str) -> None:
    cluster.patch(of(Server), name, {"status": {"lifecycle": lifecycle}}, subresource="status")


class Viewer(threading.Thread):
    """Reads a live stream, as a browser does, and counts."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.received = self.frames = 0
        self.by_second: dict[int, int] = {}
        self.last = 0.0
        self.counts: dict[str, int] = {}
        self.left = 0

    def run(self) -> None:
        answer = urllib3.PoolManager().request("GET", f"{self._url}/events", preload_content=False, timeout=600)
        assert answer.status == 200
        with suppress(urllib3.exceptions.HTTPError):  # at the end, the service goes
            self._read(answer)

    def _read(self, answer: urllib3.BaseHTTPResponse) -> None:
        pending = b""
        for part in answer.stream(65536):
            self.received += len(part)
            second = int(time.monotonic())
            self.by_second[second] = self.by_second.get(second, 0) + len(part)
            *events, pending = (pending + part).split(b"\n\n")
            for event in events:
                if b"event: fleet" in event:
                    self.frames += 1
                    self.last = time.monotonic()
                    told = json.loads(event.partition(b"data: ")[2])
                    self.counts, self.left = told["counts"], told["left"]


def a_storm(feed: Feed, lifecycle: str, viewers: int) -> Storm:
    streams = [Viewer(feed.url) for _ in range(viewers)]
    for each in streams:
        each.start()
    until(lambda: all(each.received for each in streams))
    shown = len(feed.names) * 9 // 10  # all but those that were not accepted, switched off and the like
    with ProcessorTime(feed.pid) as processor:
        began, moment = time.monotonic(), time.time()
        feed.change_all(lifecycle)
        written = time.monotonic()
        limit = written + STORM_LIMIT_SECONDS
        while not all(each.counts.get(STATE_OF[lifecycle], 0) >= shown and not each.left for each in streams):
            assert time.monotonic() < limit, "not all of the storm was shown"
            time.sleep(0.2)
        last = max(each.last for each in streams)
        used = processor.between(moment, moment + (last - began))
    return Storm(
        viewers=viewers,
        writes=written - began,
        shown_after=max(0.0, last - written),
        processor=used,
        frames=max(each.frames for each in streams),
        received=max(each.received for each in streams),
        most_a_second=max(max(each.by_second.values()) for each in streams),
    )


def viewers_ratio(figures: Figures) -> float:
    one, many = figures.storms
    return many.processor / one.processor


def check_goals(runs: Sequence[Figures]) -> list[Check]:
    case = f"{runs[0].servers} servers {source_of(runs[0])}"
    found = {
        "first_paint": [statistics.median(run.first_paint) for run in runs],
        "ready": [statistics.median(run.ready) for run in runs],
        "packed": [run.packed for run in runs],
        "seen": [statistics.median(run.seen) for run in runs],
        "viewers": [viewers_ratio(run) for run in runs],
        "long_task": [run.long_task for run in runs],
    }
    return [goal.check(case, found[name]) for name, goal in GOALS.items()]


def source_of(figures: Figures) -> str:
    return "in a real API server, and their Nodes" if figures.listed else "in the memory of the service (a fake source)"


def table(runs: Sequence[Figures]) -> str:
    """The figures, bounds beside them."""
    first = runs[0]

    def one(field: str, form: str = ".2f") -> str:
        return spread([float(getattr(run, field)) for run in runs], form)

    def several(field: str, form: str = ".2f", scale: float = 1.0) -> str:
        return spread([value * scale for run in runs for value in getattr(run, field)], form)

    bound = size = ""
    if first.listed:
        bound = f"reading and parsing the same objects: {first.listed[0]:.1f}"
        size = f"these objects as JSON: {first.listed[1] / 2**20:.0f}"
    start = [("start until ready, s", one("started", ".1f"), bound)] if first.listed else []  # a fake is made first
    rows = (
        *start,
        ("memory when ready, MiB", one("memory_mib", ".0f"), size),
        ("memory at the end, MiB", one("memory_after_mib", ".0f"), ""),
        ("page of the fleet, bytes (gzip)", f"{first.whole} ({first.packed})", ""),
        ("page of the fleet, the first time, s", one("first_page"), ""),
        ("page of the fleet, s", several("page", ".3f"), f"bare: {several('page_bound', '.3f')}"),
        ("page of one server, s", several("server_page", ".3f"), ""),
        ("page of the pool that has them all, the first time, s", one("pool_page"), ""),
        ("browser: first contentful paint, s", several("first_paint"), ""),
        ("browser: usable (the script has run), s", several("ready"), ""),
        ("browser: an arrow key, ms", several("key", ".1f", 1000), ""),
        ("a change, from its write to the tile, s", several("seen"), "one frame a second"),
        ("browser: longest task in both storms, ms", one("long_task", ".0f"), ""),
    )
    head = (
        *("viewers", "changes made in, s", "all shown after, s", "processor of the service, s", "of one change, ms"),
        *("frames", "bytes a viewer", "most in a second"),
    )
    storms = []
    for number, storm in enumerate(first.storms):
        each = [run.storms[number] for run in runs]
        processor = [one_storm.processor for one_storm in each]
        storms.append(
            (
                storm.viewers,
                spread([one_storm.writes for one_storm in each]),
                spread([one_storm.shown_after for one_storm in each]),
                spread(processor),
                spread([seconds / first.servers * 1000 for seconds in processor], ".2f"),
                *(max(getattr(one_storm, what) for one_storm in each) for what in ("frames", "received")),
                max(one_storm.most_a_second for one_storm in each),
            )
        )
    many = spread([viewers_ratio(run) for run in runs], ".2f")
    return "\n".join(
        [
            f"## The page of {first.servers} servers {source_of(first)}",
            "",
            f"Chromium (headless shell) on the same two cores as all the rest. {TIMES} times in each repetition; "
            "median (least to most) of all. The bound of a page: the same bytes sent by a bare waitress.",
            "",
            *markdown(("what", "measured", "bound"), rows),
            "",
            f"Each of the {first.servers} servers changes once; frames and bytes: the most of all repetitions.",
            "",
            *markdown(head, storms),
            "",
            f"{first.storms[-1].viewers} viewers cost {many} times the processor time of one.",
            "",
        ]
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


if __name__ == "__main__":
    sys.exit(main())
