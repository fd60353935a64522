"""The four configuration files: ``plists``, ``reading``; ``resolving`` finds each key's ε."""
