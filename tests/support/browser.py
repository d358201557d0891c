"""A headless Chromium, driven by Selenium."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final, final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

__all__ = ["Browser"]

WAIT_SECONDS: Final = 20.0


@final
class Browser:
    """One window; what its console reports is an error of the page."""

    def __init__(self, *, width: int = 1280, height: int = 900) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            raise RuntimeError("no chromium, or no chromedriver: python -m tests.dashboard.install")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage",
                         "--hide-scrollbars", "--no-proxy-server"):  # fmt: skip
            options.add_argument(argument)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # which Chromium does not have for root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver: Final = webdriver.Chrome(options=options, service=Service(driver))
        self.resize(width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def resize(self, width: int, height: int) -> None:
        """Give the page this size in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Prefer the colour scheme `light` or `dark`, and no motion: clicks wait for no scrolling."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        return self.driver.execute_script(f"return {script}")

    def text(self, selector: str) -> str:
        """Return the text of an element, as it is in the document."""
        return self.run(f"document.querySelector({selector!r}).textContent")

    def wait(self, condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition holds."""
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: condition())

    def problems(self) -> list[str]:
        """Return what the console reported since the last call: errors, refused resources."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def picture(self, path: Path) -> None:
        """Write a picture of the window."""
        self.driver.save_screenshot(str(path))
