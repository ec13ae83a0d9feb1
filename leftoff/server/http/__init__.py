"""HTTP without any dialect: connections and their limits, hosts and origins, API keys, bodies, errors, OpenAPI."""
