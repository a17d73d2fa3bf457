"""A real browser for the tests: Debian's Chromium, closed off from every network, and a page that tells what it did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright

from glassformer.explainer.document import Document
from glassformer.explainer.page import page_html

__all__ = ["CHROMIUM", "Visitor", "launch", "needs_browser"]

CHROMIUM: Final = os.environ.get("GLASSFORMER_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: the explainer's page was NOT tested; install it (apt-get install chromium) or set "
    "GLASSFORMER_CHROMIUM to its path",
)


@contextmanager
def launch() -> Iterator[Browser]:
    """Start the browser, without a window, and end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A reader of the page, who writes down what went wrong and what was fetched."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self._folder = page, folder
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.shown: Document | None = None
        page.on("console", lambda message: self._complain(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", self._asked)
        page.on("request", self._fetched)

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(text)

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _fetched(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.requests.append(request.url)

    def open(self, document: Document, at: str = "") -> None:
        """Open the exported page of a document from disk, and wait until it has checked itself."""
        self.shown = document
        file = self._folder / "page.html"
        file.write_text(page_html(document), encoding="utf-8")
        self.page.goto("about:blank")
        self.faults.clear()
        self.requests.clear()
        self.page.goto(f"{file.as_uri()}{at and '#'}{at}")
        self.page.wait_for_selector("body.checked", timeout=20_000)

    def arrive(self, document: Document) -> float:
        """Open a page without waiting for its checks, and say after how many milliseconds it could be read."""
        self.shown = document
        file = self._folder / "page.html"
        file.write_text(page_html(document), encoding="utf-8")
        self.page.goto("about:blank")
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("body.ready")
        took: float = self.page.evaluate("() => performance.now()")
        return took

    def go(self, at: str) -> None:
        """Follow a link within the page."""
        self.page.evaluate(
            """at => new Promise((done) => {
              if (decodeURIComponent(location.hash) === `#${at}`) return done();
              addEventListener('hashchange', () => requestAnimationFrame(done), {once: true});
              location.hash = at;
            })""",
            at,
        )

    def overflow(self, places: list[str]) -> dict[str, int]:
        """Go through places and say by how many pixels each is too wide."""
        found: dict[str, int] = self.page.evaluate(
            """async (places) => { const found = {};
            for (const at of places) {
              location.hash = at;
              await new Promise((done) => addEventListener('hashchange', done, {once: true}));
              found[at] = document.documentElement.scrollWidth - innerWidth;
            } return found; }""",
            places,
        )
        return found

    def numbers(self, within: str = "#station") -> list[dict[str, Any]]:
        """Read every number that the page shows: its address, its value and its text."""
        found: list[dict[str, Any]] = self.page.evaluate(
            """within => [...document.querySelectorAll(`${within} [data-value]`)].map((one) =>
               ({address: one.dataset.address, value: Number(one.dataset.value), text: one.textContent}))""",
            within,
        )
        return found
