"""A simulated device: ``daemon`` has budgets, ``privatising`` makes bits, ``scenario`` writes."""
