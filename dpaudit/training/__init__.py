"""Training without privacy, checkpoints with their measured accuracy, published weights."""
