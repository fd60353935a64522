"""Lets the tests here import ``sources_of_trouble`` (importlib mode puts no folder on the path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
