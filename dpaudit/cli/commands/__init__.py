"""A file for each command or family: options, help, and what it does.

What takes long to import (numpy, scipy, the audit) is imported where it is used, so that help and
errors come at once.
"""
