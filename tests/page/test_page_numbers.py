"""Numbers as the page shows them: what rounds up to the next unit is shown in that one."""

from playwright.sync_api import Page

SHOWN = [
    ("size", 0, "0 B"),
    ("size", 1023, "1023 B"),
    ("size", 10_200, "10 KiB"),
    ("size", (1 << 20) - 1, "1.0 MiB"),
    ("size", 5 << 50, "5120 TiB"),
    ("budget", (1 << 50) - 1, "1024 TiB"),
    ("budget", 1 << 50, "no limit"),
    ("duration", 999.4, "999 ms"),
    ("duration", 999.6, "1.0 s"),
    ("duration", 9_960, "10 s"),
    ("duration", 59_700, "1 min 0 s"),
    ("duration", 119_800, "2 min 0 s"),
    ("duration", 3_599_600, "1 h 0 min"),
    ("duration", 5_400_000, "1 h 30 min"),
    ("age", 59.4, "59 s ago"),
    ("age", 59.6, "1 min ago"),
    ("age", 3_599, "1 h ago"),
    ("age", 86_399, "1 d ago"),
    ("age", 200_000, "2 d ago"),
    ("rounded", 999, "999"),
    ("rounded", 999.6, "1.0k"),
    ("rounded", 26_400, "26k"),
]


def test_a_unit_is_chosen_by_what_is_shown(page: Page, url: str) -> None:
    page.goto(f"{url}/#chat")
    call = "async ([name, value]) => (await import('/page/shared/format.js'))[name](value)"
    shown = [(name, value, page.evaluate(call, [name, value])) for name, value, _ in SHOWN]
    assert shown == SHOWN
