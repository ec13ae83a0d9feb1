"""Speculative decoding without a second model: drafts are copied from tokens that a tenant has read or written before.

1. A `TokenLog` per namespace holds those tokens, and finds where the last few of a reply occurred (`token_log.py`).
2. The `Trail` of a running reply follows the longest such match, and says what came next there (`trail.py`).
3. How often a match is right, by its length, is counted at every token, also where nothing is drafted (`Odds`).
4. From that and the measured time of a batch by its tokens, the `Drafter` chooses the length of a draft, down to none
   (`batch_times.py`, `drafter.py`).
5. Where nothing was found that pays, the next-token layer of the model guesses, if it has one (`mtp.py`).

The engine decodes the draft together with the token before it. Each position is then sampled from its own logits, as
without a draft; what was guessed wrong is taken back (`LlamaEngine.settle`). So a draft changes when a token comes, and
never which.
"""
