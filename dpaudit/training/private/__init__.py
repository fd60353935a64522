"""A whole private training run, with canaries in it and an onlooker."""
