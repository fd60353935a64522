"""An installed Chromium, driven by playwright, where there are both."""

import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDED = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome"
)
