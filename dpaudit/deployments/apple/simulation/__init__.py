"""A made-up device: the daemon with its tasks and budgets, its owner's habits, its files in Apple's formats."""
