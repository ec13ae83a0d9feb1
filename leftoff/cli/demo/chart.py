"""What `leftoff demo` draws: for each step two bars, the time to the first token with the cache off and on."""

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from leftoff.cli.demo.play import Measured
from leftoff.cli.demo.scenes import Scene, Step
from leftoff.cli.talk import Turn
from leftoff.cli.units import printable, show_ms

_WIDTH = 32  # of a bar as long as the first
_MAX_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass
class Chart:
    """Rows on a console, each as soon as it is known. The first time that is drawn gives the scale."""

    console: Console
    scale_ms: float = 0.0

    def title(self, number: int, scene: Scene) -> None:
        self.console.print(f"\n{number} · {scene.title}", style="bold")
        self.console.print(f"    {scene.story}", style="dim")

    def question(self, step: Step) -> None:
        self.console.print(Text.assemble("\n    ", (step.label, "cyan"), f" · {step.question}"))

    def bar(self, name: str, turn: Turn, colour: str) -> None:
        self.scale_ms = self.scale_ms or turn.first_token_ms
        bar = draw_bar(turn.first_token_ms / self.scale_ms)
        ms = show_ms(turn.first_token_ms)
        self.console.print(Text.assemble(f"      {name:<4}", (bar, colour), f" {ms}  ", (_counts(turn), "dim")))

    def reply(self, measured: Measured) -> None:
        self._said(measured.on.text)
        if not measured.is_same_reply:
            self._said(f"with the cache off: {measured.off.text}")

    def _said(self, text: str) -> None:
        self.console.print(f"      → {printable(text.strip())}", style="dim")


def draw_bar(share: float) -> str:
    """At least a hair, so that one sees where it is."""
    full, rest = divmod(max(1, round(8 * _WIDTH * share)), 8)
    return "█" * _MAX_WIDTH if full >= _MAX_WIDTH else "█" * full + _EIGHTHS[rest].strip()


def _counts(turn: Turn) -> str:
    reused, total = turn.reused or 0, turn.prompt_tokens or 0
    return f"reused {reused:,}, read {total - reused:,}" if reused else f"read {total:,}"
