"""The pictures of the README are the page's own, of a made-up fleet at one moment; GOLDEN=write takes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.web.browser import PATIENCE_MS
from tests.web.conftest import served
from tests.web.made_up_fleet import NOON, make_fleet

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 150_000
SERVERS = 112


@pytest.mark.parametrize(
    ("name", "path", "height"),
    [("rack", "/", 660), ("boot", "/servers/r01-u16", 620), ("rollout", "/pools/gpu", 620)],
)
def test_a_picture_is_small_enough_for_the_readme_and_there(
    browser: Browser, name: str, path: str, height: int
) -> None:
    site = served(make_fleet(SERVERS), now=lambda: NOON)
    site.start()
    context = browser.new_context(
        viewport={"width": 1280, "height": height}, reduced_motion="reduce", color_scheme="light"
    )
    page = context.new_page()
    page.goto(f"{site.url}{path}")
    expect(page.get_by_role("status")).to_have_text("Live", timeout=PATIENCE_MS)
    picture = page.screenshot()
    context.close()
    site.stop()
    assert len(picture) < MOST_BYTES
    file = PICTURES / f"{name}.png"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture)
    assert file.read_bytes().startswith(b"\x89PNG"), f"{file} is not there: GOLDEN=write"
    assert file.stat().st_size < MOST_BYTES
