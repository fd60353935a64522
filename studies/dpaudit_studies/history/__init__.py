"""``dpaudit history``: the releases of a library, each installed by itself and audited."""
