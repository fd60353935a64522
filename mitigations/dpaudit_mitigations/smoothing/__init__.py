"""Little things added to noise that fill the gaps between pancakes: independent noise (proven), rounding (measured)."""
