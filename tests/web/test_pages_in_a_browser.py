"""The pages in a real browser: what they show, that they follow, and that everybody can use them."""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import CONTRAST, PATIENCE_MS, Quiet
from tests.web.conftest import Served, of_caches, served
from tests.web.made_up_fleet import condition, make_fleet

PATHS = (
    "/", "/racks/r01", "/servers/r01-u16", "/servers/r02-u16", "/servers/r03-u36", "/maintenances",
    "/maintenances/r01-u26-1", "/pools", "/pools/gpu", "/login", "/servers/nobody",
)  # fmt: skip
LEAST_CONTRAST = 4.5
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe'


@pytest.fixture(autouse=True)
def _patience() -> None:
    expect.set_options(timeout=PATIENCE_MS)


def changed(site: Served, name: str, lifecycle: str, *conditions: dict[str, Any]) -> None:
    body = copy.deepcopy(site.body("servers", name))
    body["status"]["lifecycle"] = lifecycle
    others = [c for c in body["status"]["conditions"] if c["type"] not in {each["type"] for each in conditions}]
    body["status"]["conditions"] = [*others, *conditions]
    site.source("servers").put(body)


def is_live(page: Page) -> None:
    expect(page.get_by_role("status")).to_have_text("Live")


def test_the_fleet_is_shown_rack_by_rack_with_what_waits_and_why(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/")
    is_live(page)
    rack = page.get_by_role("region", name="Rack r01", exact=True)
    expect(rack.get_by_role("listitem")).to_have_count(8)
    assert rack.get_by_role("listitem").first.inner_text().strip().endswith("r01-u36"), (
        "the top of the rack comes first"
    )
    expect(page.locator("#count-production")).to_have_text("34")
    waits = page.get_by_role("table", name="Servers that wait for the same, together")
    expect(waits.get_by_role("row").filter(has_text="SlurmJob")).to_contain_text("SlurmJob 4712 runs there")
    expect(waits.get_by_role("row").filter(has_text="GPUs")).to_contain_text("fell off the bus (XID 79)")


def test_what_is_looked_for_is_found_without_a_script(site: Served, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/")
    page.get_by_label("Find").fill("r02 u16")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="1 of 48 servers match")).to_be_visible()
    page.get_by_role("link", name="r02-u16: failed").click()
    expect(page.get_by_role("heading", name="r02-u16", level=1)).to_be_visible()
    expect(page.get_by_role("table", name="Phases of the boot").get_by_role("row")).to_have_count(9)
    page.get_by_role("link", name="Pools").click()
    page.get_by_role("link", name="gpu").click()
    expect(page.locator(".headline")).to_contain_text("gpu moves from Image gpu-node-5c21d09e77ab")
    context.close()


def test_a_server_tells_its_boot_beside_the_pools_median_and_why_it_is_so(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/servers/r01-u16")
    phases = page.get_by_role("table", name="Phases of the boot")
    expect(phases.get_by_role("rowheader")).to_have_text(["ordered", "firmware", "iPXE†", "stage-1†", "root†"])
    expect(phases.get_by_role("row").filter(has_text="firmware").get_by_role("cell").nth(2)).to_have_text(
        re.compile(r"^\d+ s$")
    )
    expect(page.locator("[data-part=boot]")).to_contain_text("Under way; usual in pool gpu: 2 min")
    expect(page.locator("[data-part=why]")).to_contain_text("rollout asked for Reimage to Image gpu-node-9f3c01234567")
    page.get_by_role("region", name="Maintenances").get_by_role("link", name="r01-u16-1").click()
    expect(page.get_by_role("heading", name="Maintenance r01-u16-1")).to_be_visible()
    expect(page.get_by_role("table", name="What was done and seen")).to_contain_text("Requested")


def test_a_change_appears_on_the_pages_that_show_it(site: Served, page: Page, browser: Browser) -> None:
    page.goto(f"{site.url}/")
    is_live(page)
    other = browser.new_context().new_page()
    quiet = Quiet(other)
    other.goto(f"{site.url}/servers/r06-u36")
    is_live(other)
    now = datetime.now(UTC)
    changed(site, "r06-u36", "Booted", condition("Verified", "False", "GPUs", "7 of 8 GPUs are there", now))
    expect(page.get_by_role("link", name="r06-u36: failed. 7 of 8 GPUs are there")).to_be_visible()
    expect(page.locator("#s-r06-u36 b")).to_have_text("!")
    expect(page.locator("#count-failed")).to_have_text("3")
    expect(page.locator("#news")).to_have_text("r06-u36: failed. 7 of 8 GPUs are there")
    expect(
        page.get_by_role("table", name="Servers that wait for the same")
        .get_by_role("row")
        .filter(has_text="7 of 8 GPUs are there")
    ).to_be_visible()
    expect(other.locator(".headline")).to_contain_text("failed")
    other.context.close()
    assert quiet.said == []


def test_a_server_that_is_new_gets_its_place(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/")
    is_live(page)
    body = copy.deepcopy(site.body("servers", "r06-u36"))
    body["metadata"]["name"] = "r06-u41"
    body["spec"]["position"] = "u41"
    site.source("servers").put(body)
    expect(page.get_by_role("region", name="Rack r06", exact=True).get_by_role("link").nth(1)).to_contain_text(
        "r06-u41"
    )


def test_a_page_says_that_it_lost_the_service_and_follows_it_again(site: Served, page: Page) -> None:
    page.quiet.expects = ("net::ERR",)  # type: ignore[attr-defined]
    page.goto(f"{site.url}/")
    is_live(page)
    site.stop()
    expect(page.get_by_role("status")).to_have_text("Not connected: what you see may be old")
    now = datetime.now(UTC)
    again = of_caches(site.caches, port=site.port)
    changed(site, "r06-u01", "Booted", condition("Verified", "False", "GPUs", "seen while away", now))
    again.start()
    is_live(page)
    expect(page.get_by_role("link", name="r06-u01: failed. seen while away")).to_be_visible()
    again.stop()


def test_all_of_it_is_reached_by_the_keyboard_alone(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/")
    is_live(page)

    def focused() -> str:
        return str(page.evaluate("() => document.activeElement.id || document.activeElement.innerText.trim()"))

    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(focused())
        if stops[-1].startswith("s-"):
            break
    assert stops[:5] == ["Skip to the content", "provisioner", "Fleet", "Maintenances", "Pools"]
    assert stops.index("q") < stops.index("state") < stops.index("pool")
    assert stops[-1] == "s-r01-u36"
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where the focus is must be seen"
    for key, where in (
        ("ArrowDown", "s-r01-u31"), ("ArrowRight", "s-r02-u31"), ("End", "s-r06-u01"), ("Home", "s-r01-u36"),
        ("Escape", "q"), ("Escape", "s-r01-u36"), ("/", "q"), ("Escape", "s-r01-u36"), ("ArrowDown", "s-r01-u31"),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert focused() == where, key
    expect(page.locator("#peek")).to_contain_text("r01-u31: in maintenance. SlurmJob 4712 runs there")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="r01-u31", level=1)).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"


def test_the_focus_stays_where_it_is_when_a_part_is_made_anew(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/servers/r01-u26")
    is_live(page)
    link = page.get_by_role("region", name="Maintenances").get_by_role("link", name="r01-u26-1")
    link.focus()
    body = copy.deepcopy(site.body("maintenances", "r01-u26-1"))
    body["status"]["phase"] = "Claiming"
    site.source("maintenances").put(body)
    expect(page.locator("[data-part=maintenances]")).to_contain_text("Claiming")
    assert page.evaluate("() => document.activeElement.innerText") == "r01-u26-1"


def test_who_hears_the_page_is_told_what_is_on_it(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/")
    heard = page.locator("body").aria_snapshot()
    for words in (
        '- navigation "Pages"', "- main", '- heading "Fleet" [level=1]', '- region "Servers by state"', "- search",
        '- searchbox "Find (name, rack, address, MAC, serial, image)"', '- combobox "State"', '- region "Rack r03"',
        'link "r03-u21: failed. stage Firmware takes 21 min',
        'link "r01-u16: in maintenance. wait for the new boot"',
        '- contentinfo', "- status",
    ):  # fmt: skip
        assert words in heard, f"{words!r} is not in\n{heard}"
    page.goto(f"{site.url}/pools/gpu")
    assert re.search('- img "[56] updated, 1 on its way', page.locator("body").aria_snapshot())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(site: Served, browser: Browser, scheme: Any) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    weak = []
    for path in PATHS:
        page.goto(f"{site.url}{path}")
        seen = page.evaluate(CONTRAST)
        assert len(seen) > 3
        weak += [f"{path} {what}: {ratio:.2f}" for what, ratio in seen if ratio < LEAST_CONTRAST]
    context.close()
    assert weak == []


def test_nothing_moves_for_who_wants_no_motion(site: Served, browser: Browser) -> None:
    page = browser.new_context(reduced_motion="reduce").new_page()
    page.goto(f"{site.url}/")
    page.evaluate("() => document.getElementById('s-r01-u36').classList.add('changed')")
    assert page.evaluate("() => getComputedStyle(document.getElementById('s-r01-u36')).animationName") == "none"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate("() => getComputedStyle(document.getElementById('s-r01-u36')).animationName") == "changed"
    page.context.close()


def test_a_narrow_screen_shows_all_of_it(site: Served, browser: Browser) -> None:
    page = browser.new_context(viewport={"width": 320, "height": 640}).new_page()
    for path in PATHS:
        page.goto(f"{site.url}{path}")
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 320, f"{path} is {width} px wide"
    page.context.close()


def test_ten_thousand_servers_are_one_page_that_can_be_used(page: Page) -> None:
    """How fast, `tests/benchmarks/web_bench.py` tells."""
    site = served(make_fleet(10_000, now=datetime.now(UTC)))
    site.start()
    page.goto(f"{site.url}/")
    is_live(page)
    assert page.locator("#elevations .s").count() == 10_000
    page.locator("#elevations .s").first.focus()
    page.keyboard.press("End")
    last = page.evaluate("() => document.activeElement.id")
    assert last == "s-r1250-u01"
    changed(site, "r1250-u01", "Held")
    held = page.locator("#s-r1250-u01")  # by a name that is computed, ten thousand would have to be
    expect(held).to_have_accessible_name("r1250-u01: held by a person")
    expect(held).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("r1250 u06")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1 of 10000 servers match")).to_be_visible()
    page.context.close()  # before what it asks is gone
    site.stop()


def test_what_a_machine_says_stays_text(site: Served, page: Page) -> None:
    now = datetime.now(UTC)
    changed(
        site,
        "r06-u36",
        "Booted",
        condition("Verified", "False", "GPUs", HOSTILE, now),
        condition("PoweredOn", "True", HOSTILE, HOSTILE, now),
    )
    body = copy.deepcopy(site.body("servers", "r06-u36"))
    body["status"]["progress"]["message"] = HOSTILE
    body["status"]["discovery"] = {"manufacturer": HOSTILE, "product": HOSTILE}
    body["status"]["verification"]["checks"][1]["message"] = HOSTILE
    body["status"]["imageRef"] = HOSTILE
    site.source("servers").put(body)
    node = copy.deepcopy(site.body("nodes", "r06-u36"))
    node["spec"]["taints"] = [{"key": HOSTILE, "effect": "NoSchedule"}]
    site.source("nodes").put(node)
    asked = copy.deepcopy(site.body("maintenances", "r01-u26-1"))
    asked["status"]["blockers"][0]["message"] = asked["spec"]["requestors"][0]["message"] = HOSTILE
    site.source("maintenances").put(asked)
    site.service.follower.step()
    for path in (
        "/",
        "/racks/r06",
        "/servers/r06-u36",
        "/maintenances",
        "/maintenances/r01-u26-1",
        "/pools/gpu",
        f"/?q={HOSTILE}",
    ):
        page.goto(f"{site.url}{path}")
        expect(page.locator("html")).to_have_attribute("data-ready", "1")
        assert page.locator("img").count() == 0, path
        assert page.locator("script").count() == 1, path
    page.goto(f"{site.url}/servers/r06-u36")
    expect(page.locator("[data-part=boot] q")).to_have_text(
        '"><img src=x onerror=alert(1)><script>alert(2)</script>\ufffdgnp.exe'
    )
    page.goto(f"{site.url}/")
    is_live(page)
    changed(site, "r06-u31", "Booted", condition("Verified", "False", HOSTILE, HOSTILE + " live", now))
    expect(page.locator("#s-r06-u31")).to_have_attribute("aria-label", re.compile("onerror.* live"))
    expect(page.locator("#news")).to_contain_text("live")
    assert page.locator("img").count() == 0


def test_the_policy_of_the_page_stops_what_would_run(site: Served, page: Page) -> None:
    """The twin of the above: if markup did get in, the browser itself would not run it."""
    page.quiet.expects = ("Content Security Policy", "CSP:", "Trusted")  # type: ignore[attr-defined]
    page.goto(f"{site.url}/")
    ran = page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent === "" && script.append("globalThis.ran = true");
          try { document.body.append(script); } catch {}
          try { document.body.innerHTML = "<img src=x onerror='globalThis.ran = true'>"; } catch {}
          return globalThis.ran === true;
        }"""
    )
    assert not ran
    assert page.locator("img").count() == 0
