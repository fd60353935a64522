"""The four configuration files: ``plists`` and ``reading`` read them, ``resolving`` follows every key to its ε and budget."""
