"""The blob store of the disk tier: files of pages and snapshots, and an index of them, in one folder for each model."""
