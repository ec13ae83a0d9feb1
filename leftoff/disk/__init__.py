"""The disk tier's shelf: files of pages and snapshots, and an index of them, in one folder for each model."""
