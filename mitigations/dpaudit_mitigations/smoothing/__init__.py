"""Small changes to noise that fill the gaps between pancakes: own noise (proven), rounding."""
