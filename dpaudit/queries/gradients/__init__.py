"""The gradient of a batch as a query: per-record gradients, neighbouring batches, one step."""
