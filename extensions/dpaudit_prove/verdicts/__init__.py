"""What an exact law shows: distances to claims, privacy, the coins behind each value."""
