"""A real browser, and what holds for every page: nothing on its console, nothing that its policy forbade."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.tools import installed

PATIENCE_MS: Final = 180_000
"""For what must happen: a machine that is five times slower has it, too."""


@contextmanager
def a_browser() -> Iterator[Browser]:
    program = installed("chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Quiet:
    """What a page said that it should not have: errors, warnings, and violations of its Content-Security-Policy."""

    def __init__(self, page: Page) -> None:
        self.said: list[str] = []
        self.expects: tuple[str, ...] = ()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error(`CSP: ${e.violatedDirective}`))"
        )

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"{message.type}: {message.text}")

    def _note(self, words: str) -> None:
        if not any(each in words for each in self.expects):
            self.said.append(words)


CONTRAST: Final = """() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    const under = ground(element);
    const text = over(parse(getComputedStyle(element).color), under);
    const [a, b] = [light(text), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const key = element.tagName + "." + element.className;
    if (!found.has(key) || found.get(key) > ratio) found.set(key, ratio);
  }
  return [...found];
}"""
"""By tag and class: the least contrast of text with what is under it, by WCAG's formula."""
