"""Prompts with fewer layers on the GPU than the model has: the others lie in RAM."""

from dataclasses import replace

from lab.gpu import goals
from lab.gpu.agents import series
from lab.gpu.record import Series
from lab.gpu.rig import Rig, Server

_NUM_LAYERS = 14  # of the 33 of the random hybrid
_LONGEST = 2000
_NUM_PROMPTS = 2


def measure(rig: Rig) -> None:
    """Each server alone."""
    num_tokens, layers = min(_LONGEST, rig.long), str(_NUM_LAYERS)
    rig.record.say(f"offload: {_NUM_PROMPTS} prompts of {num_tokens:,} tokens, {layers} layers on the GPU")
    with rig.leftoff(1, "--gpu-layers", layers) as server:
        ours = _read(server, num_tokens)
    with replace(rig, peer_flags=(*rig.peer_flags, "-ngl", layers)).peer(1) as server:
        theirs = _read(server, num_tokens)
    title = f"{num_tokens:,} tokens, {layers} layers on the GPU"
    rig.record.add("offload", title, "ms", ours, theirs, goals.COLD, in_order=True)


def _read(server: Server, num_tokens: int) -> Series:
    prompts = [server.prompts.tokens(f"offload {number}", num_tokens) for number in range(_NUM_PROMPTS)]
    return series([server.ask(prompt, 1) for prompt in prompts])
