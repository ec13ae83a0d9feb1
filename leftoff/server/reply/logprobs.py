"""Log-probabilities of generated tokens on the wire: the shape that OpenAI's chats and llama-server share."""

from collections.abc import Sequence

from msgspec import Struct

from leftoff.engine.vocabulary import Vocabulary
from leftoff.server.reply.stream import Piece, TokenChance


class TopLogprob(Struct):
    """One candidate: its token id, its text, and the bytes of the text, which may be no valid UTF-8."""

    id: int
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """The token that was sampled, and the most likely candidates at its position."""

    id: int
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


def token_logprobs(pieces: Sequence[Piece], vocabulary: Vocabulary) -> list[TokenLogprob]:
    """One for each token; empty when the request did not ask for log-probabilities."""

    def named(chance: TokenChance) -> TopLogprob:
        piece = vocabulary.piece(chance.token)
        return TopLogprob(chance.token, piece.decode("utf-8", "replace"), chance.logprob, list(piece))

    def with_others(chosen: TokenChance, top: Sequence[TokenChance]) -> TokenLogprob:
        own = named(chosen)
        return TokenLogprob(own.id, own.token, own.logprob, own.bytes, [*map(named, top)])

    return [with_others(piece.chosen, piece.top) for piece in pieces if piece.chosen is not None]
