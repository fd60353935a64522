"""``dpaudit run libraries``: libraries that people draw noise with, and attacks on them."""
