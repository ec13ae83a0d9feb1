"""The prompt cache: it saves what the engine has computed, and restores it for prompts that begin alike.

1. For each namespace, a radix tree records the token sequences that were read (`tree.py`).
2. Its nodes hold *pages*, the attention KV of a range of positions, and *resume points*, positions with a snapshot of
   what cannot be cut back: a recurrent state or a sliding window (`node.py`).
3. There are tiers of such trees, RAM, an optional disk and an optional store that machines share, each under a byte
   budget (`tier.py`, `tiers.py`); those below RAM write behind, to a `BlobStore`, the pages and the resume points that
   other prompts are known to need (`blob_tier.py`, `blob_store.py`).
4. When a budget is full, the resume point is evicted whose chance of reuse, times the tokens it saves, per byte, is
   lowest, and with it the pages that led to it alone (`budget.py`, `ranking.py`, `policy.py`), of any
   of the models that share it (`capacity.py`); a disk, which wears, evicts little (`wear.py`).
5. When a request is admitted, a `Lookup` finds its known prefix in all trees and in the engine's sequences
   (`lookup.py`).
6. The cheapest way to resume, in measured milliseconds of loading and prefill, is its `Plan` (`plan.py`, `costs.py`),
   made once for each admission, and anew only if trees or sequences have changed since.
7. What the plan needs from below RAM is fetched while other requests run (`fetch.py`); then one call,
   `Memory.restore`, shares cells with another sequence, loads pages, and loads the snapshot (`restore.py`).
8. Prefill pauses at chosen positions, such as the end of the system prompt or of a message, to save a resume point
   and the pages up to there (`placement.py`, `turn.py`, `save.py`).
9. A finished sequence stays in its slot, is copied to RAM and disk when nothing runs, and is saved as far as the
   budgets allow before its slot or its cells are used for another: these are the states of an `EngineSequence`
   (`sequences.py`).
10. Every request gets a reuse report that gives each prefilled token exactly one reason (`report.py`).

`Cache` (`cache.py`) is what the scheduler calls. All of it belongs to the engine's thread, sees the engine only through
`engine/memory/base.py`, and knows no model, no text and no HTTP.
"""
