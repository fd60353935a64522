"""The budget database: opened read-only, read by its ``schema``, and its balances checked."""
