"""KV cells, recurrent states and windows of all sequences: save, load, cut, share. `base.py` is the protocol."""
