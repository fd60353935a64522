"""The commands with their options and help, by group; each imports its code when it runs."""
