"""Prebuilt llama.cpp libraries for this machine: which there are, and how they are downloaded and installed."""
