"""Two servers: one answers, another adds noise of its own and publishes."""
