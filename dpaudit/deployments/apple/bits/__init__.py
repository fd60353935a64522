"""What the bits of reports show of ε, whatever is claimed: estimates with intervals, one kind of record a file."""
