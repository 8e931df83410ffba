"""What layers cost a boot: one root, packed as one squashfs, as four and as sixteen, and booted in turns.

`python -m tests.benchmarks.layers_bench` as root, after `make demo`, whose image it takes. The root's files are dealt
out: to four layers by what they are for, as an image has them, and to sixteen by a hash of their paths, so that every
folder is made of all layers, which is as bad as it gets. Each is signed, served over HTTP, and booted in QEMU until its
agent asks to join. Beside wall time stands the processor time of the emulator, which other load hardly changes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.demo.state import DemoState
from lab.tools import obtain_tools
from provisioner.image.finished.sign import SecretKey, read_secret_key
from provisioner.node.image.manifest import ImageContents, ImageError, read_manifest
from tests.benchmarks.record import Goal, begin, ratios, spread
from tests.image.vm import HOST, MAC, guest
from tests.signed_image import SignedImage, layered_image

MOST: Final = 16
GOALS: Final[dict[str, Goal]] = {}
PURPOSES: Final = {
    "driver": ("usr/lib/modules/", "usr/lib/firmware/"),
    "kubelet": ("usr/bin/kubelet",),
    "site": ("etc/", "usr/lib/python3/dist-packages/", "usr/share/provisioner/"),
}
WORDS: Final = ("loglevel=4", "systemd.getty_auto=no", "systemd.firstboot=off", f"systemd.machine_id={'5e' * 16}")
ADDRESS: Final = {"address": "10.0.2.21/24", "gateway": HOST}


@dataclass(frozen=True)
class Boot:
    """Seconds from power-on; `processor`: of the emulator, until the end."""

    mounted: float
    asked: float
    processor: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1536, help="MiB of the machine")
    parser.add_argument("--store", type=Path, help="with an image in it, in place of the demo's")
    parser.add_argument("--key", type=Path, help="the secret key that the image is signed with")
    options, _ = parser.parse_known_args(arguments)
    run = begin("layers")
    cache = Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner"))
    state = DemoState(cache=cache, name="demo")
    store, key = options.store or state.image_store, read_secret_key(options.key or state.keys / "image.sec")
    folder, contents = newest_image(store)
    found: dict[str, list[Boot]] = {}
    with tempfile.TemporaryDirectory(dir=cache) as work:
        tree = unpack(store, contents, Path(work) / "root")
        images = {
            "one": sign(pack(tree, lambda path: "base"), folder, key),
            "four": sign(pack(tree, by_purpose), folder, key),
            "sixteen": sign(pack(tree, by_hash), folder, key),
        }
    for repetition in range(options.repetitions):
        for name, image in images.items():
            found.setdefault(name, []).append(boot(cache, store, contents, image, options.memory))
            print(f"{repetition + 1} {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    megabytes = {name: sum(map(len, image.layers.values())) / 1e6 for name, image in images.items()}
    return run.finish(table(found, megabytes, options.memory), [], options.repetitions)


def newest_image(store: Path) -> tuple[Path, ImageContents]:
    """The last one of the servers': the demo's store has a DPU's, too."""
    for folder in sorted(store.glob("sha256-*"), key=lambda each: each.stat().st_mtime, reverse=True):
        with suppress(ImageError):
            manifest = (folder / "manifest").read_bytes()
            return folder, read_manifest(manifest, folder.name.replace("-", ":", 1), "x86_64")
    raise SystemExit(f"{store} has no image for x86_64: make demo")


def unpack(store: Path, contents: ImageContents, tree: Path) -> Path:
    """All layers of the image, one over the other."""
    for layer in contents.layers:
        subprocess.run(["unsquashfs", "-q", "-n", "-f", "-d", tree, store / layer.path], check=True)
    return tree


def by_purpose(path: str) -> str:
    return next((name for name, starts in PURPOSES.items() if path.startswith(starts)), "base")


def by_hash(path: str) -> str:
    return f"l{zlib.crc32(path.encode()) % MOST:02}"


def pack(tree: Path, layer_of: Callable[[str], str]) -> dict[str, bytes]:
    """A squashfs for each layer, as the builder makes them; every layer has all folders of its files."""
    parts = tree.with_name("parts")
    for folder, folders, files in os.walk(tree):
        for name in (*files, *(each for each in folders if Path(folder, each).is_symlink())):
            path = Path(folder, name).relative_to(tree)
            target = parts / layer_of(str(path)) / path
            for above in reversed(list(target.relative_to(parts).parents)[:-1]):
                if not (parts / above).exists():
                    (parts / above).mkdir(parents=True)
                    shutil.copystat(tree / Path(*above.parts[1:]), parts / above)
            os.link(tree / path, target, follow_symlinks=False)
    # Folders that are empty in the root: the lowest layer has them.
    lowest = min(parts.iterdir(), key=lambda part: part.name != "base")
    for folder, _, _ in os.walk(tree):
        (lowest / Path(folder).relative_to(tree)).mkdir(parents=True, exist_ok=True)
    layers = {}
    for part in sorted(parts.iterdir(), key=lambda part: (part != lowest, part.name)):
        packed = parts.with_name(f"{part.name}.squashfs")
        options = ["-noappend", "-quiet", "-no-progress", "-no-xattrs", "-comp", "zstd", "-Xcompression-level", "12"]
        subprocess.run(["mksquashfs", part, packed, *options, "-b", "262144", "-all-time", "1767225600"], check=True)
        layers[part.name] = packed.read_bytes()
    shutil.rmtree(parts)
    return layers


def sign(layers: Mapping[str, bytes], folder: Path, key: SecretKey) -> SignedImage:
    manifest = dict(line.split(" ", 1) for line in (folder / "manifest").read_text().splitlines())
    return layered_image(layers, key=key, release=manifest["version.kernel"])


def boot(cache: Path, store: Path, contents: ImageContents, image: SignedImage, memory_mib: int) -> Boot:
    """Once, until the agent says that it asks to join."""
    files = (store / contents.kernel.path, store / contents.stage1.path)
    served = {f"/images/{path}": content for path, content in image.served().items()}
    words = {"server": "r01-u01", "mac": MAC, "url": f"http://{HOST}", "join": f"https://{HOST}:8443"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    arguments = {**words, "image": image.name, **ADDRESS}
    with guest(
        obtain_tools(cache), files, served.get, arguments=arguments, words=WORDS, memory_mib=memory_mib
    ) as heard:
        heard.post("System")
        mounted = time.monotonic() - began
        heard.post("Token")
        asked = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Boot(mounted, asked, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def table(found: Mapping[str, Sequence[Boot]], megabytes: Mapping[str, float], memory_mib: int) -> str:
    rows = [
        "## What layers cost a boot",
        "",
        f"The demo's image in QEMU, emulated by TCG, 2 vCPU, {memory_mib} MiB, {len(found['one'])} boots each,",
        "in turns: kernel and stage-1 put into memory by QEMU, layers over HTTP. Seconds, median (least to most), from",
        "power-on. CPU: the emulator's processor seconds until the agent asks to join; ratio: to those with one layer,",
        "of neighbours. Four layers are dealt out by what files are for, sixteen by a hash of their paths,",
        "so that every folder is made of all.",
        "",
        "| layers | MB | root mounted | agent asks to join | CPU | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, boots in found.items():
        columns = [spread([getattr(each, field) for each in boots]) for field in ("mounted", "asked", "processor")]
        to_one = ratios([each.processor for each in boots], [one.processor for one in found["one"]])
        rows.append(f"| {name} | {megabytes[name]:.1f} | {' | '.join(columns)} | **{spread(to_one, '.2f')}** |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
