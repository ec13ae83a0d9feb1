"""The router at / for a browser: the replicas, how busy they are, and the way to the page of each."""

from collections.abc import Iterator
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, PlainTextResponse, Response

_PRESENCE = "leftoff route is running: the API is that of a server, its replicas are at /cluster, figures at /metrics\n"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_COLUMNS = ("replica", "model", "state", "running", "waiting", "queue", "resume points", "requests", "failures")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width">
<title>leftoff route</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8884 }}
</style>
<h1>leftoff route</h1>
<p>{count} · index: {index}. Each replica has a page of its own. This one is renewed every five seconds.</p>
<table><tr>{head}</tr>{rows}</table>
{notes}
</html>
"""


def overview(described: dict[str, Any], accept: str) -> Response:
    """`described` is the answer of /cluster. Clients that ask for no HTML get a line of text."""
    if "text/html" not in accept:
        return PlainTextResponse(_PRESENCE)
    replicas = [each for group in described["groups"] for each in group["replicas"]]
    page = _PAGE.format(
        count=f"{len(replicas)} {'replica' if len(replicas) == 1 else 'replicas'}",
        index=described["index"] or "none",
        head="".join(f"<th>{name}</th>" for name in _COLUMNS),
        rows="".join(f"<tr>{''.join(_cells(each))}</tr>" for each in replicas),
        notes="".join(f"<p>{escape(note)}</p>" for note in described["notes"]),
    )
    return HTMLResponse(page, headers=_HEADERS)


def _cells(replica: dict[str, Any]) -> Iterator[str]:
    url, load, points = escape(replica["url"]), replica["load"], replica["held_points"]
    yield f'<td><a href="{url}">{url}</a></td>'
    numbers = (
        load["num_running"],
        load["num_waiting"],
        f"{replica['queue_ms']:.0f} ms",
        "?" if points is None else points,
    )
    ready = replica["readiness"]
    sleep = "" if ready["is_awake"] else ", asleep" if ready["is_open"] else ", never opened"
    for value in (replica["model"], replica["state"] + sleep, *numbers, replica["requests"], replica["failures"]):
        yield f"<td>{escape(str(value))}</td>"
