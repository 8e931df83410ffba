"""Scripts on disk follow the inventory: one changed server costs one file, an empty disk is filled again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server import BootOrder, Server, ServerStatus
from provisioner.boot.metrics.scripts import ScriptMeter
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.script import renderer
from provisioner.boot.script.choose import choose_boot_target
from provisioner.boot.script.renderer import ScriptRenderer
from tests.boot.fake_source import FakeSource
from tests.boot.objects import URLS, at, condition, image, pool, rack, server


class World:
    """Caches, an index and a renderer over them."""

    def __init__(self, folder: Path, *servers: object, synced: bool = True, meter: ScriptMeter | None = None) -> None:
        self.servers = FakeSource(*servers, synced=synced)  # type: ignore[arg-type]
        self.pools, self.images, self.racks = FakeSource(pool()), FakeSource(image()), FakeSource(rack())
        index = ServerIndex(self.servers)
        self.renderer = ScriptRenderer(
            index, pools=self.pools, images=self.images, racks=self.racks, urls=URLS, folder=folder, meter=meter
        )
        index.attach()
        self.renderer.attach()
        self.scripts = folder / "ipxe"

    def changed(self) -> int:
        """Render what the caches' changes have marked; returns how many files that touched."""
        with self.renderer._wake:
            macs, self.renderer._changed = self.renderer._changed, set()
        return self.renderer.render(macs)

    def text(self, mac: str = "52-54-00-12-34-56") -> str:
        return (self.scripts / f"{mac}.ipxe").read_text()


def mac(i: int) -> str:
    return f"52:54:00:00:{i >> 8:02x}:{i & 255:02x}"


def test_an_empty_disk_is_filled_and_a_second_look_touches_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, server(), server("r01-u02", boot_mac_address="52:54:00:12:34:57"))
    assert world.renderer.render_all() == 2
    assert world.renderer.render_all() == 0
    assert "kernel" in world.text()
    assert (tmp_path / "boot.ipxe").exists()
    assert (tmp_path / "starting.ipxe").exists()


def test_scripts_of_vanished_servers_are_removed_and_damaged_ones_repaired(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.renderer.render_all()
    (world.scripts / "52-54-00-99-99-99.ipxe").write_text("#!ipxe\n")
    (world.scripts / "52-54-00-12-34-56.ipxe").write_text("#!ipxe\nshell\n")
    assert world.renderer.render_all() == 2
    assert sorted(path.name for path in world.scripts.iterdir()) == ["52-54-00-12-34-56.ipxe"]
    assert "shell" not in world.text()


def test_one_changed_server_costs_one_file(tmp_path: Path) -> None:
    world = World(tmp_path, *(server(f"s{i}", boot_mac_address=mac(i)) for i in range(50)))
    world.renderer.render_all()
    world.servers.put(server("s7", boot_mac_address=mac(7), acceptance="Rejected"))
    assert world.changed() == 1
    assert "Rejected" in world.text(mac(7).replace(":", "-"))


def test_a_booting_servers_progress_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.renderer.render_all()
    status = ServerStatus(address="10.80.0.21", subnet_name="boot", boot_stage="Root")
    world.servers.put(server(status=status))
    assert not world.renderer._changed


def test_a_server_waits_for_the_dpu_in_it_and_boots_once_that_is_ready(tmp_path: Path) -> None:
    def card(ready: Any) -> Server:
        given = server("r01-u01-dpu", boot_mac_address=mac(1), architecture="arm64", dpu=DPU(host_ref="r01-u01"))
        return replace(given, status=replace(given.status, conditions=(condition("Ready", ready),)))

    world = World(tmp_path, server(), server("r01-u02", boot_mac_address=mac(2)), card("False"))
    world.renderer.render_all()
    assert "DPU 'r01-u01-dpu'" in world.text()
    assert "kernel" in world.text(mac(2).replace(":", "-")), "it is no card of that one"
    world.servers.put(card("True"))
    assert world.changed() == 1
    assert "kernel" in world.text()
    world.servers.put(card("Unknown"))
    assert world.changed() == 1
    assert "WaitsForDPU" in world.text()


def test_a_pools_new_image_reaches_its_servers_alone(tmp_path: Path) -> None:
    world = World(tmp_path, server(), server("r01-u02", boot_mac_address="52:54:00:12:34:57", node_pool_ref="other"))
    world.pools.put(pool("other"))
    world.images.put(image("newer"))
    world.renderer.render_all()
    world.pools.put(pool(image_ref="newer"))
    assert world.changed() == 1
    assert "Image newer" in world.text()


def test_a_pools_new_image_reaches_a_server_whose_boot_is_over_and_none_that_boots(tmp_path: Path) -> None:
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="gpu-node-abababababab")
    booting = ServerStatus(address="10.80.0.21", subnet_name="boot", order=order)
    world = World(tmp_path, server(status=booting))
    world.images.put(image("newer"))
    world.renderer.render_all()
    world.pools.put(pool(image_ref="newer"))
    world.changed()
    assert "Image gpu-node-abababababab" in world.text()
    world.servers.put(server(status=replace(booting, ready_time=at(40))))
    assert world.changed() == 1
    assert "Image newer" in world.text()
    world.images.put(image("newer", available="False"))
    assert world.changed() == 1
    assert "ImageUnavailable" in world.text()


def test_an_image_that_becomes_unavailable_stops_the_servers_that_would_boot_it(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.renderer.render_all()
    world.images.put(image(available="False"))
    assert world.changed() == 1
    assert "ImageUnavailable" in world.text()


def test_a_server_that_changes_its_mac_takes_its_script_along(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.renderer.render_all()
    world.servers.put(server(boot_mac_address="52:54:00:12:34:99"))
    assert world.changed() == 2
    assert [path.name for path in world.scripts.iterdir()] == ["52-54-00-12-34-99.ipxe"]


def test_a_pending_twin_does_not_take_an_accepted_servers_script(tmp_path: Path) -> None:
    world = World(tmp_path, server(), server("a-twin", acceptance="Pending"))
    world.renderer.render_all()
    assert "Server r01-u01" in world.text()
    world.servers.remove("r01-u01")
    assert world.changed() == 1
    assert "Server a-twin waits" in world.text()


def test_before_the_caches_are_filled_nothing_is_deleted(tmp_path: Path) -> None:
    world = World(tmp_path, synced=False)
    world.renderer.write_fixed()
    (world.scripts / "52-54-00-12-34-56.ipxe").write_text("#!ipxe\n")
    stop = threading.Event()
    thread = threading.Thread(target=world.renderer.run, args=(stop,))
    thread.start()
    try:
        assert not world.renderer._rebuilt.wait(0.3)
        assert world.text() == "#!ipxe\n"
        world.servers.put(server())
        world.servers.has_synced = True
        assert world.renderer._rebuilt.wait(120)
        assert "kernel" in world.text()
        world.servers.put(server(acceptance="Rejected"))
        deadline = time.monotonic() + 120
        while "Rejected" not in world.text() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "Rejected" in world.text()
    finally:
        stop.set()
        world.renderer.wake()
        thread.join(120)
    assert not thread.is_alive()


def test_a_full_disk_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, server())
    real, failures = Path.write_text, [OSError(28, "No space left on device")] * 2

    def write_text(self: Path, text: str) -> int:
        if failures:
            raise failures.pop()
        return real(self, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    stop = threading.Event()
    thread = threading.Thread(target=world.renderer.run, args=(stop,))
    thread.start()
    try:
        assert world.renderer._rebuilt.wait(120)
    finally:
        stop.set()
        world.renderer.wake()
        thread.join(120)
    assert "kernel" in world.text()


def test_what_waits_for_a_full_disk_is_told_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    world = World(tmp_path, server(), meter=ScriptMeter(registry))
    real, is_full = Path.write_text, False

    def write_text(self: Path, text: str) -> int:
        if is_full:
            raise OSError(28, "No space left on device")
        return real(self, text)

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"provisioner_{name}", labels) or 0.0

    def wait_until(true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(Path, "write_text", write_text)
    monkeypatch.setattr(renderer, "_FIRST_PAUSE_SECONDS", 0.01)
    stop = threading.Event()
    thread = threading.Thread(target=world.renderer.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: world.renderer.ready and world.renderer.pending() == (0, 0.0))
        assert world.renderer.scripts == 1
        assert value("scripts_rendered_total", result="written") == 1
        is_full = True
        world.servers.put(server(acceptance="Rejected"))
        wait_until(lambda: value("script_write_failures_total") >= 2)
        count, seconds = world.renderer.pending()
        assert count == 1
        wait_until(lambda: world.renderer.pending()[1] > seconds)
        is_full = False
        wait_until(lambda: world.renderer.pending() == (0, 0.0))
        assert "Rejected" in world.text()
        world.servers.remove("r01-u01")
        wait_until(lambda: value("scripts_rendered_total", result="removed") == 1)
    finally:
        stop.set()
        world.renderer.wake()
        thread.join(120)
    assert world.renderer.scripts == 0
    assert value("script_render_seconds_count") >= 3


def test_a_script_of_what_cannot_be_read_is_counted_apart(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    world = World(tmp_path, server(), meter=ScriptMeter(registry))
    world.servers.objects["r01-u01"]["spec"]["rackRef"] = 7
    world.renderer.render_all()
    assert "Unreadable" in world.text()
    assert registry.get_sample_value("provisioner_scripts_rendered_total", {"result": "unreadable"}) == 1


def test_a_fault_while_rendering_does_not_end_the_renderer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, server())
    real, failures = world.renderer.render_all, [RuntimeError("a bad day")]

    def render_all() -> int:
        if failures:
            raise failures.pop()
        return real()

    monkeypatch.setattr(world.renderer, "render_all", render_all)
    stop = threading.Event()
    thread = threading.Thread(target=world.renderer.run, args=(stop,))
    thread.start()
    try:
        assert world.renderer._rebuilt.wait(120)
    finally:
        stop.set()
        world.renderer.wake()
        thread.join(120)
    assert "kernel" in world.text()


def test_a_server_that_meets_a_fault_waits_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, server(), server("r01-u02", boot_mac_address="52:54:00:12:34:57"))

    def choose(of: Server, *inputs: Any) -> Any:
        if of.name == "r01-u02":
            raise RuntimeError("a bad day")
        return choose_boot_target(of, *inputs)

    monkeypatch.setattr(renderer, "choose_boot_target", choose)
    world.renderer.render_all()
    assert "kernel" in world.text()
    assert "Unreadable" in world.text("52-54-00-12-34-57")


def test_an_object_that_cannot_be_read_makes_its_server_wait_and_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, server(), server("r01-u02", boot_mac_address="52:54:00:12:34:57"))
    world.servers.objects["r01-u02"]["spec"]["bootMACAddress"] = "52:54:00:12:34:57"
    world.servers.objects["r01-u02"]["spec"]["interfaces"] = "not a list"
    world.renderer.render_all()
    assert "kernel" in world.text()
    assert "Unreadable" in world.text("52-54-00-12-34-57")


def test_counts_in_a_pools_status_render_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.renderer.render_all()
    counted = pool()
    world.pools.put(
        replace(counted, status=replace(counted.status, desired=3, conditions=(condition("Ready", "True"),)))
    )
    assert not world.renderer._changed


def test_a_cache_that_is_taken_out_is_left_out_of_its_servers_scripts(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    cached = rack(cache_url="http://10.80.0.5")
    world.racks.put(cached)
    world.renderer.render_all()
    assert "images=http://10.80.0.5/images" in world.text()
    said = replace(condition("CacheAvailable", "False"), observed_generation=cached.metadata.generation)
    world.racks.put(replace(cached, status=replace(cached.status, conditions=(said,))))
    assert world.changed() == 1
    assert "10.80.0.5" not in world.text()


def test_a_servers_next_attempt_has_another_script(tmp_path: Path) -> None:
    world = World(tmp_path, server())
    world.racks.put(rack(cache_url="http://10.80.0.5"))
    world.renderer.render_all()
    order = BootOrder(id="order-2", reason="TimedOut", ordered_time=at(0), attempt=2)
    world.servers.put(server(status=ServerStatus(address="10.80.0.21", subnet_name="boot", order=order)))
    assert world.changed() == 1
    assert "nextimages=http://10.80.0.5/images" in world.text()


def test_ten_thousand_servers_are_written(tmp_path: Path) -> None:
    world = World(tmp_path, *(server(f"s{i}", boot_mac_address=mac(i)) for i in range(10_000)))
    began = time.process_time()
    assert world.renderer.render_all() == 10_000
    spent = time.process_time() - began
    assert len(list(world.scripts.iterdir())) == 10_000
    assert spent < 60, "rendering a fleet takes seconds; this is no measurement, only a guard against the square"
