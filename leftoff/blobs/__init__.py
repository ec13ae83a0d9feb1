"""Pages and snapshots on a medium that outlives the process: one mechanism, whatever the medium is.

`store.py` is what a tier sees, `writer.py` writes behind, and `medium.py` is all that files (`leftoff/disk`) and the
objects that machines share (`leftoff/store`) differ in.
"""
