"""A page opened in headless Chromium, driven as a reader would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")

OVERLAPS = """
const found = [];
for (const chart of document.querySelectorAll("figure svg")) {
  const boxes = [...chart.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  const texts = boxes.filter((t) => t[1].width);
  texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
    const beside = p.left >= q.right - 1 || q.left >= p.right - 1 || p.top >= q.bottom - 2 || q.top >= p.bottom - 2;
    if (!beside) found.push(a + " / " + b);
  }));
}
for (const box of document.querySelectorAll("figure, article, .controls, nav, p, h1, h2, h3")) {
  const own = box.getBoundingClientRect();
  if (own.width && own.right > innerWidth + 1) found.push("past the edge: " + box.textContent.slice(0, 60));
}
const whole = document.documentElement.scrollWidth;
if (whole > innerWidth) found.push("wider than the screen: " + whole);
return found;
"""
"""Texts of a chart that lie on one another, and what sticks out of the screen."""


class Page:
    """An open page; what it says of itself."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def width(self, pixels: int, *, height: int = 900, dark: bool = False) -> None:
        """Lay the page out for a screen so wide. By the protocol: a window cannot be as narrow as a phone."""
        metrics = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": pixels < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def enter(self, element: str, value: str) -> None:
        """Set a control's value as typing or choosing does."""
        self.run(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))",
            element,
            value,
        )

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
        )
        return found

    def overlaps(self) -> list[str]:
        found: list[str] = self.run(OVERLAPS)
        return found

    def complaints(self) -> list[str]:
        """What the console said since the last call, at the level of a warning or above."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses asked for since the last call, but for the page's own file and data in it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:") and not url.endswith(".html")]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return innerWidth")
        metrics = {"width": width, "height": min(height, 14_000), "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.save_screenshot(str(path))


@contextmanager
def browser() -> Iterator[Page]:
    """Chromium, or a skip that says what is missing."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no chromium and chromedriver here: sh .ci/install-chromium")
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = selenium.Chrome(options=options, service=service.Service(driver))
    try:
        yield Page(running)
    finally:
        running.quit()
