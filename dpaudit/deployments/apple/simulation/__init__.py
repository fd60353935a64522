"""A made-up device: ``daemon`` keeps budgets, ``privatising`` makes bits, ``scenario`` writes what a device would hold."""
