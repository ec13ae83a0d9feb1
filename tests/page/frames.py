"""What the page costs a browser: processor time of its main thread, which other work on the machine changes little."""

import math

from playwright.sync_api import Page

FRAME_MS = 1000 / 60
_TRIES = 4
_SCROLL = """([selector, number]) => new Promise((resolve, reject) => {
    const box = document.querySelector(selector);
    let step = 60;
    let frames = 0;
    box.scrollTop = 0;
    const draw = () => {
        if (frames === 2 && box.scrollTop === 0) return reject(new Error(`${selector} does not scroll`));
        if (frames === number) return resolve();
        frames += 1;
        const end = box.scrollHeight - box.clientHeight;
        if (box.scrollTop + step > end || box.scrollTop + step < 0) step = -step;
        box.scrollTop += step;
        requestAnimationFrame(draw);
    };
    requestAnimationFrame(draw);
})"""


class MainThread:
    """The main thread of a page, from when this is made."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    @property
    def ms(self) -> float:
        """Its processor time in all."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def frame_ms(self, selector: str, num_frames: int = 60) -> float:
        """Its processor time for a frame while something scrolls, 60 pixels each: at 60 a second, it has `FRAME_MS`.

        The least of a few tries: beside another program on the same core each step takes up to twice as long.
        """
        least = math.inf
        for _ in range(_TRIES):
            before = self.ms
            self._page.evaluate(_SCROLL, [selector, num_frames])
            least = min(least, (self.ms - before) / num_frames)
            if least < FRAME_MS:
                break
        return least
