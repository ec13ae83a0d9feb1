"""The page in a real browser: Playwright drives the chromium of the system."""
