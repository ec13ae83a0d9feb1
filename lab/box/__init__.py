"""A fleet in a box: store, index, router and write-behind under one simulated clock and network, with seeded faults."""
