"""Many machines, one cache: several `leftoff serve` processes that share a store, and what routes requests to them."""
