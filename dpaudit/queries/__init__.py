"""Hosts turn data into pairs of neighbouring query results, with their sensitivity."""
