"""stage-1 in QEMU: what it does when the image that it is sent is not the one that was signed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.image.build import Built, Request
from provisioner.image.finished.manifest import FILES, Manifest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import folder_name, measure
from provisioner.image.inputs import base_fingerprint
from provisioner.lab.tools import Tools
from provisioner.node.image.initrd import after_root, before_root
from tests.image.vm import HOST, MAC, Dripping, guest
from tests.tools import lab_tools

# As small as a root can be: it says what stage-1 has left for it, and turns the machine off.
REQUEST_KEY = "0123456789abcdef" * 4
INIT = """#!/bin/sh
export PATH=/bin
for file in /etc/hostname /etc/resolv.conf /run/systemd/network/10-provisioner.network /run/provisioner/boot.json; do
    echo "root: $file"
    cat "$file"
done
grep ' / ' /proc/mounts | sed 's/^/root: mounted /'
ip -4 addr show eth0 | grep inet
key=/run/provisioner/request-key
[ ! -e $key ] || echo "root: request key $(stat -c %a $key) $(cat $key)"
echo "root: end"
poweroff -f
"""


@dataclass(frozen=True)
class Small:
    """A signed image of the real kernel and stage-1 with a root of one program."""

    name: str
    manifest: bytes
    signature: str
    root: bytes


@pytest.fixture(scope="module")
def tools() -> Tools:
    return lab_tools()


@pytest.fixture(scope="module")
def small(built: Built, request_of_tests: Request, tmp_path_factory: pytest.TempPathFactory) -> Small:
    work = tmp_path_factory.mktemp("small")
    base = request_of_tests.cache / "base" / base_fingerprint(request_of_tests.recipe, request_of_tests.choices)
    tree = work / "root"
    for name in ("bin", "sbin", "etc", "proc", "sys", "dev", "run"):
        (tree / name).mkdir(parents=True)
    (tree / "bin/busybox").write_bytes((base / "stage1-packages/usr/bin/busybox").read_bytes())
    (tree / "bin/busybox").chmod(0o755)
    for applet in ("sh", "cat", "grep", "sed", "ip", "poweroff"):
        (tree / "bin" / applet).symlink_to("busybox")
    (tree / "sbin/init").write_text(INIT)
    (tree / "sbin/init").chmod(0o755)
    file = work / "root.squashfs"
    subprocess.run(["mksquashfs", tree, file, "-quiet", "-no-progress", "-comp", "zstd"], check=True)
    return sign(built.manifest, file, request_of_tests.key)


def sign(like: Manifest, root: Path, key: SecretKey, root_bytes: int | None = None) -> Small:
    measured = measure(root)
    if root_bytes is not None:
        measured = type(measured)(measured.sha256, root_bytes)
    manifest = Manifest(
        recipe=like.recipe,
        distribution=like.distribution,
        architecture=like.architecture,
        kernel=like.kernel,
        stage1=like.stage1,
        root=measured,
        versions=dict(like.versions),
    ).encode()
    return Small(folder_name(digest_of(manifest)), manifest, key.sign(manifest), root.read_bytes())


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {other: body for other, body in files.items() if other != name}


def arguments(image: str, **more: str) -> dict[str, str]:
    return {
        "server": "r01-u01",
        "mac": MAC,
        "url": f"http://{HOST}",
        "join": f"https://{HOST}:8443",
        "image": image,
        **more,
    }


ADDRESS = {"address": "10.0.2.21/24", "gateway": HOST, "dns": "10.0.2.3,10.0.2.4", "ntp": "10.0.2.5", "mtu": "1400"}


@pytest.mark.timeout(900)
def test_each_wrong_image_is_told_on_console_and_in_a_report_and_the_right_one_boots(
    built: Built, small: Small, tools: Tools, signing_key: SecretKey
) -> None:
    """The rack's cache and the boot host, asked in turn, are wrong in one way after the other; then they are right."""
    # The right key number with another key: only the signature itself tells.
    forger = SecretKey(signing_key.number, SecretKey.generate(lambda size: b"f" * size).seed)
    root, manifest = small.root, small.manifest
    altered = root[:5000] + bytes([root[5000] ^ 1]) + root[5001:]
    good = {"manifest": manifest, "manifest.sig": small.signature.encode(), "root.squashfs": root}
    faults: list[tuple[dict[str, bytes], str]] = [
        (good | {"manifest": b""}, "verification failed"),
        (good | {"manifest.sig": forger.sign(manifest).encode()}, "verification failed"),
        (good | {"manifest.sig": SecretKey.generate().sign(manifest).encode()}, "checked against wrong key"),
        (without(good, "manifest"), "404"),
        (without(good, "root.squashfs"), "nothing: server returned"),
        (good | {"root.squashfs": root[:-1000]}, f"truncated: {len(root) - 1000} of {len(root)} bytes"),
        (good | {"root.squashfs": altered}, "altered: sha256"),
        (good | {"root.squashfs": root + b"\0" * 3_000_000}, f"more than {len(root)} bytes"),
        (good | {"manifest": manifest.replace(b"root ", b"root 0")}, "verification failed"),
    ]
    sources = (f"/cache/images/{small.name}/", f"/images/{small.name}/")
    images = f"http://{HOST}/cache/images"

    def answer(path: str) -> bytes | None:
        assert path.startswith(sources), path
        # One fault until it is reported: on a busy machine a report can be lost, and the fault shows once more.
        told = len(heard.messages())
        files = faults[told][0] if told < len(faults) else good
        return files.get(path.rsplit("/", 1)[1])

    with guest(tools, built.folder, answer, arguments=arguments(small.name, images=images, **ADDRESS)) as heard:
        heard.line("root: end")
        told = heard.messages()
        assert len(told) == len(faults), told
        for (_, words), message in zip(faults, told, strict=True):
            assert words in message
            assert "; expected " in message
            assert any(words in line for line in heard.console)
        for source in sources:
            assert any(f"http://{HOST}{source}" in message for message in told), source
        assert [post["stage"] for post in heard.posts if "message" not in post] == ["Stage1", "Root", "System"]
        assert {post["path"] for post in heard.posts} == {"/v1/progress"}
        assert {post["mac"] for post in heard.posts} == {MAC}
        assert len({post["bootID"] for post in heard.posts}) == 1
        said = "\n".join(heard.console)
        assert said.count("trying again in") >= len(faults) // 2
        # What the root finds.
        after = said[said.index("root: /etc/hostname") :]
        assert "root: /etc/hostname\nr01-u01\n" in after
        assert "nameserver 10.0.2.3\nnameserver 10.0.2.4\n" in after
        assert f"MACAddress={MAC}" in after
        assert "Address=10.0.2.21/24\nGateway=10.0.2.2\nKeepConfiguration=yes\nNTP=10.0.2.5\n" in after
        assert "MTUBytes=1400" in after
        assert "root: mounted overlay / overlay rw" in after
        assert "inet 10.0.2.21/24" in after
        facts = json.loads(after[after.index("{") : after.index("}") + 1])
        assert facts["server"] == "r01-u01"
        assert facts["imageDigest"] == small.name.replace("-", ":")
        assert facts["address"] == "10.0.2.21/24"
        assert facts["join"] == f"https://{HOST}:8443"
        assert "root: request key" not in after


@pytest.mark.timeout(900)
def test_a_cache_that_drips_is_left_for_the_boot_host(built: Built, small: Small, tools: Tools) -> None:
    """With stage-1's own bounds of time."""
    files = {"manifest": small.manifest, "manifest.sig": small.signature.encode(), "root.squashfs": small.root}

    def answer(path: str) -> bytes | None:
        name = path.rsplit("/", 1)[1]
        if path.startswith("/cache/") and name == "root.squashfs":
            return Dripping(small.root[: len(small.root) // 2])
        return files.get(name)

    given = arguments(small.name, images=f"http://{HOST}/cache/images", **ADDRESS)
    with guest(tools, built.folder, answer, arguments=given) as heard:
        message = heard.post("Root", "at least 256 KiB/s")["message"]
        assert message.startswith(f"source http://{HOST}/cache/images: observed ")
        heard.line("root: end")
        assert len(heard.messages()) == 1


def behind_stage1(built: Built, file: Path, manifest: bytes, signature: str, root: bytes, told_bytes: int) -> Path:
    """The initramfs that the agent loads for a kexec: stage-1, and behind it what it has staged."""
    stage1 = (built.folder / FILES["stage1"]).read_bytes()
    between = before_root(len(stage1), manifest, signature.encode(), told_bytes)
    file.write_bytes(stage1 + between + root + after_root(told_bytes, REQUEST_KEY))
    return file


@pytest.mark.timeout(900)
def test_a_root_that_came_staged_is_mounted_where_it_lies_and_nothing_is_fetched(
    built: Built, small: Small, tools: Tools, tmp_path: Path
) -> None:
    fetched: list[str] = []
    initrd = behind_stage1(
        built, tmp_path / "initrd", small.manifest, small.signature, small.root, told_bytes=len(small.root)
    )
    with guest(tools, built.folder, fetched.append, arguments=arguments(small.name, **ADDRESS), initrd=initrd) as heard:
        heard.line("root: end")
        said = "\n".join(heard.console)
        assert "root was staged before this boot" in said
        assert "root: mounted overlay / overlay rw" in said
        assert f"root: request key 600 {REQUEST_KEY}" in said
        assert [post["stage"] for post in heard.posts] == ["Stage1", "System"]
        assert heard.messages() == []
    assert fetched == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["forged", "cut"])
def test_what_came_staged_and_is_not_right_is_told_of_and_fetched(
    built: Built, small: Small, tools: Tools, signing_key: SecretKey, tmp_path: Path, fault: str
) -> None:
    forger = SecretKey(signing_key.number, SecretKey.generate(lambda size: b"f" * size).seed)
    signature = forger.sign(small.manifest) if fault == "forged" else small.signature
    root = small.root[:-1000] if fault == "cut" else small.root
    initrd = behind_stage1(built, tmp_path / "initrd", small.manifest, signature, root, told_bytes=len(root))
    good = {"manifest": small.manifest, "manifest.sig": small.signature.encode(), "root.squashfs": small.root}

    def answer(path: str) -> bytes | None:
        return good.get(path.rsplit("/", 1)[1])

    with guest(tools, built.folder, answer, arguments=arguments(small.name, **ADDRESS), initrd=initrd) as heard:
        heard.line("root: end")
        (message,) = heard.messages()
        assert {"forged": "verification failed", "cut": f"{len(root)} bytes; expected {len(small.root)}"}[
            fault
        ] in message
        assert any("root verified" in line for line in heard.console)
        assert any(REQUEST_KEY in line for line in heard.console), "the boot is the successor all the same"


@pytest.mark.timeout(900)
def test_without_an_address_it_asks_dhcp_and_a_root_larger_than_memory_is_not_fetched(
    built: Built, small: Small, tools: Tools, request_of_tests: Request, tmp_path: Path
) -> None:
    """On an e1000e card, which has its driver in stage-1 as virtio-net has."""
    file = tmp_path / "root"
    file.write_bytes(small.root)
    huge = sign(built.manifest, file, request_of_tests.key, root_bytes=7_000_000_000)
    fetched: list[str] = []

    def answer(path: str) -> bytes | None:
        fetched.append(path.rsplit("/", 1)[1])
        return {"manifest": huge.manifest, "manifest.sig": huge.signature.encode()}.get(fetched[-1])

    with guest(tools, built.folder, answer, arguments=arguments(huge.name), card="e1000e") as heard:
        heard.line(f"eth0 ({MAC}) has 10.0.2.15/24")
        message = heard.post("Root", "memory")["message"]
        assert "expected 7202 MB (root 7000 MB and 202 MB to run in)" in message
        assert "smaller image" in message
        heard.line("trying again in")
        assert FILES["root"] not in fetched
