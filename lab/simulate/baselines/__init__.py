"""Models of how other servers keep prompts, over the same costs: one file each."""
