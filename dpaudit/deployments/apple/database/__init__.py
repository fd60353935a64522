"""The budget database: ``opening`` opens it unchanged, ``reading`` reads it by its ``schema``, ``balances`` checks it."""
