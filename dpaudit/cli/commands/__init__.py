"""The commands with their options and help, by group. Each imports what it needs when it runs, so that help is quick."""
