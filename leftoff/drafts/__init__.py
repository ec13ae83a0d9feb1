"""Speculative decoding: drafts are copied from tokens that a tenant has read or written before, or guessed.

1. A `TokenLog` per namespace holds those tokens, and finds where the last few of a reply occurred (`token_log.py`).
2. The `Trail` of a running reply follows the longest such match, and says what came next there (`trail.py`).
3. How often a match is right, by its length, is counted at every token, also where nothing is drafted (`Odds`).
4. From that and the measured time of a batch by its tokens, the `Drafter` chooses the length of a draft, down to none
   (`batch_times.py`, `drafter.py`).
5. The next-token layer of the model, an EAGLE-3 head or a draft model guesses; how often that is right is counted, and
   how long it takes; what does not pay is paused (`guesses.py`, `draft_model.py`). What promises the most tokens per
   second is drafted.

The engine decodes the draft together with the token before it. Each position is then sampled from its own logits, as
without a draft; what was guessed wrong is taken back (`LlamaEngine.settle`). So a draft changes when a token comes, and
never which.
"""
