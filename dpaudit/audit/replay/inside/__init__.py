"""What runs in the child: standard library and numpy only, so that any environment has it."""
