"""stage-1 in QEMU: what it does when the image that it is sent is not the one that was signed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab.tools import Tools
from provisioner.image.assembly.build import BuildRequest, Built
from provisioner.image.finished.sign import SecretKey
from provisioner.image.inputs import base_fingerprint
from provisioner.node.image.initrd import after_layer, after_layers, before_layer, before_layers
from tests.image.vm import HOST, MAC, Dripping, boot_files, guest
from tests.signed_image import SignedImage, head, layered_image, one_root_image, sign_lines
from tests.signed_image import digest as digest_of
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
for file in /layer/*; do
    echo "root: $file is of $(cat $file)"
done
while read -r digest bytes device; do
    found=$(head -c $bytes $device | sha256sum)
    echo "root: layer $digest $bytes on $device reads as ${found%% *}"
done </run/provisioner/layers
echo "root: end"
poweroff -f
"""
APPLETS = ("sh", "cat", "grep", "sed", "ip", "poweroff", "stat", "head", "sha256sum")


@pytest.fixture(scope="module")
def tools() -> Tools:
    return lab_tools()


@pytest.fixture(scope="module")
def layers(request_of_tests: BuildRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """16 squashfs. Each has a file of its own and writes over that of the one below it; the lowest has a system."""
    work = tmp_path_factory.mktemp("layers")
    base = request_of_tests.cache / "base" / base_fingerprint(request_of_tests.recipe, request_of_tests.choices)
    layers = {}
    for number, name in enumerate(["base", "driver", *(f"l{number}" for number in range(2, 15)), "site"]):
        tree = work / name
        (tree / "layer").mkdir(parents=True)
        for file in {f"{number:02}", f"{number + 1:02}", "top"}:
            (tree / "layer" / file).write_text(f"{name}\n")
        if name == "base":
            for folder in ("bin", "sbin", "etc", "proc", "sys", "dev", "run"):
                (tree / folder).mkdir(parents=True)
            (tree / "bin/busybox").write_bytes((base / "stage1-packages/usr/bin/busybox").read_bytes())
            (tree / "bin/busybox").chmod(0o755)
            for applet in APPLETS:
                (tree / "bin" / applet).symlink_to("busybox")
            (tree / "sbin/init").write_text(INIT)
            (tree / "sbin/init").chmod(0o755)
        if name == "driver":  # not so little that it is there before anybody looks
            (tree / "driver").write_bytes(os.urandom(900_000))
        file = work / f"{name}.squashfs"
        subprocess.run(["mksquashfs", tree, file, "-quiet", "-no-progress", "-comp", "zstd"], check=True)
        layers[name] = file.read_bytes()
    return layers


@pytest.fixture(scope="module")
def small(layers: dict[str, bytes], built: Built, signing_key: SecretKey) -> SignedImage:
    """Three layers, for the real kernel and stage-1. What goes wrong goes wrong with the one in the middle."""
    three = {name: layers[name] for name in ("base", "driver", "site")}
    return layered_image(three, key=signing_key, release=built.manifest.versions["kernel"])


@pytest.fixture(scope="module")
def of_format_1(layers: dict[str, bytes], built: Built, signing_key: SecretKey) -> SignedImage:
    return one_root_image(layers["base"], key=signing_key, release=built.manifest.versions["kernel"])


def without(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    return {other: body for other, body in files.items() if not other.endswith(name)}


def told_of(image: SignedImage, console: str) -> None:
    """The root found each layer where stage-1 has said that it is."""
    found = re.findall(r"root: layer (\w+) (\d+) on (/dev/loop\d+) reads as (\w+)", console)
    assert [(digest, int(size)) for digest, size, _, _ in found] == [
        (digest_of(content), len(content)) for content in image.layers.values()
    ]
    assert len({device for _, _, device, _ in found}) == len(image.layers)
    assert all(digest == read for digest, _, _, read in found)


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
    built: Built, small: SignedImage, tools: Tools, signing_key: SecretKey
) -> None:
    """The rack's cache and the boot host, asked in turn, are wrong in one way after the other; then they are right."""
    # The right key number with another key: only the signature itself tells.
    forger = SecretKey(signing_key.number, SecretKey.generate(lambda size: b"f" * size).seed)
    good, manifest, path = small.served(), small.manifest, small.path("driver")
    signed, signature, driver = f"{small.name}/manifest", f"{small.name}/manifest.sig", small.layers["driver"]
    altered = driver[:5000] + bytes([driver[5000] ^ 1]) + driver[5001:]
    faults: list[tuple[dict[str, bytes], str]] = [
        (good | {signed: b""}, "verification failed"),
        (good | {signature: forger.sign(manifest).encode()}, "verification failed"),
        (good | {signature: SecretKey.generate().sign(manifest).encode()}, "checked against wrong key"),
        (without(good, signed), "404"),
        (without(good, path), "layer driver: nothing: server returned"),
        (good | {path: driver[:-1000]}, f"layer driver: truncated: {len(driver) - 1000} of {len(driver)} bytes"),
        (good | {path: altered}, "layer driver: altered: sha256"),
        (good | {path: driver + b"\0" * 3_000_000}, f"layer driver: more than {len(driver)} bytes"),
        (good | {signed: manifest.replace(b"layer.driver ", b"layer.driver 0")}, "verification failed"),
    ]
    sources = ("/cache/images/", "/images/")
    images = f"http://{HOST}/cache/images"
    asked: list[str] = []

    def answer(path: str) -> bytes | None:
        assert path.startswith(sources), path
        asked.append(path)
        # One fault until it is reported: on a busy machine a report can be lost, and the fault shows once more.
        told = len(heard.messages())
        files = faults[told][0] if told < len(faults) else good
        return files.get(path.rpartition("/images/")[2])

    with guest(tools, boot_files(built), answer, arguments=arguments(small.name, images=images, **ADDRESS)) as heard:
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
        assert "root: /layer/top is of site\n" in after
        told_of(small, after)
    times = {name: len([path for path in asked if path.endswith(small.path(name))]) for name in small.layers}
    assert (times["base"], times["site"]) == (1, 1), "what is wrong with one layer costs no other"


@pytest.mark.timeout(900)
def test_a_cache_that_drips_is_left_for_the_boot_host(built: Built, of_format_1: SignedImage, tools: Tools) -> None:
    """With stage-1's own bounds of time, and an image as it was made before there were layers."""
    root = of_format_1.layers["root"]

    def answer(path: str) -> bytes | None:
        if path.startswith("/cache/") and path.endswith("root.squashfs"):
            return Dripping(root[: len(root) // 2])
        return of_format_1.served().get(path.rpartition("/images/")[2])

    given = arguments(of_format_1.name, images=f"http://{HOST}/cache/images", **ADDRESS)
    with guest(tools, boot_files(built), answer, arguments=given) as heard:
        message = heard.post("Root", "at least 256 KiB/s")["message"]
        assert message.startswith(f"source http://{HOST}/cache/images: observed ")
        heard.line("root: end")
        assert len(heard.messages()) == 1
        said = "\n".join(heard.console)
        assert re.search(r"root: \d+ MB of \d+ MB, now layer root", said)
        told_of(of_format_1, said)


def behind_stage1(built: Built, file: Path, image: SignedImage, changed: Mapping[str, bytes] | None = None) -> Path:
    """The initramfs that the agent loads for a kexec: stage-1, and behind it what it has staged."""
    stage1 = boot_files(built)[1].read_bytes()
    initrd = stage1 + before_layers(len(stage1), image.manifest, image.signature)
    for name, content in {**image.layers, **(changed or {})}.items():
        initrd += before_layer(image.file(name), len(content)) + content + after_layer(len(content))
    file.write_bytes(initrd + after_layers(REQUEST_KEY))
    return file


@pytest.mark.timeout(900)
def test_as_many_layers_as_there_can_be_are_mounted_where_they_came_staged_and_nothing_is_fetched(
    built: Built, layers: dict[str, bytes], signing_key: SecretKey, tools: Tools, tmp_path: Path
) -> None:
    most = layered_image(layers, key=signing_key, release=built.manifest.versions["kernel"])
    fetched: list[str] = []
    initrd = behind_stage1(built, tmp_path / "initrd", most)
    files = boot_files(built)
    with guest(tools, files, fetched.append, arguments=arguments(most.name, **ADDRESS), initrd=initrd) as heard:
        heard.line("root: end")
        said = "\n".join(heard.console)
        assert "root was staged before this boot" in said
        assert "root: mounted overlay / overlay rw" in said
        assert f"root: request key 600 {REQUEST_KEY}" in said
        assert [post["stage"] for post in heard.posts] == ["Stage1", "System"]
        assert heard.messages() == []
        assert re.findall(r"root: /layer/(\w+) is of (\w+)", said) == [
            *((f"{number:02}", name) for number, name in enumerate([*most.layers, "site"])),
            ("top", "site"),
        ]
        told_of(most, said)
    assert fetched == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["forged", "cut"])
def test_what_came_staged_and_is_not_right_is_told_of_and_fetched(
    built: Built,
    small: SignedImage,
    of_format_1: SignedImage,
    tools: Tools,
    signing_key: SecretKey,
    tmp_path: Path,
    fault: str,
) -> None:
    """What is forged is of format 1."""
    forger = SecretKey(signing_key.number, SecretKey.generate(lambda size: b"f" * size).seed)
    driver = small.layers["driver"]
    if fault == "forged":
        image, words = of_format_1, "verification failed"
        staged = replace(image, signature=forger.sign(image.manifest).encode())
        initrd = behind_stage1(built, tmp_path / "initrd", staged)
    else:
        image, words = small, f"layer driver: {len(driver) - 1000} bytes; expected {len(driver)}"
        initrd = behind_stage1(built, tmp_path / "initrd", image, {"driver": driver[:-1000]})

    def answer(path: str) -> bytes | None:
        return image.served().get(path.removeprefix("/images/"))

    files = boot_files(built)
    with guest(tools, files, answer, arguments=arguments(image.name, **ADDRESS), initrd=initrd) as heard:
        heard.line("root: end")
        (message,) = heard.messages()
        assert words in message
        for name in image.layers:
            assert any(f"layer {name} verified" in line for line in heard.console)
        assert any(REQUEST_KEY in line for line in heard.console), "the boot is the successor all the same"


@pytest.mark.timeout(900)
def test_without_an_address_it_asks_dhcp_and_layers_larger_than_memory_are_not_fetched(
    built: Built, tools: Tools, signing_key: SecretKey
) -> None:
    """On an e1000e card, which has its driver in stage-1 as virtio-net has."""
    release = built.manifest.versions["kernel"]
    sizes = [f"layer.base {'ab' * 32} 6000000000", f"layer.driver {'cd' * 32} 1000000000"]
    lines = [*head("provisioner-image 2", "x86_64", b"kernel", b"stage1"), *sizes, f"version.kernel {release}"]
    huge = sign_lines(lines, {}, {}, signing_key)
    fetched: list[str] = []

    def answer(path: str) -> bytes | None:
        fetched.append(path)
        return huge.served().get(path.removeprefix("/images/"))

    with guest(tools, boot_files(built), answer, arguments=arguments(huge.name), card="e1000e") as heard:
        heard.line(f"eth0 ({MAC}) has 10.0.2.15/24")
        message = heard.post("Root", "memory")["message"]
        assert "expected 7202 MB (root 7000 MB and 202 MB to run in)" in message
        assert "smaller image" in message
        heard.line("trying again in")
        assert not [path for path in fetched if "/parts/" in path]
