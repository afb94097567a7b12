"""Where the tests, the project and the data beside it are."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SHARED = ROOT.parent / "shared"
"""Real data and hard cases, not part of the project: tests that need them skip, saying so, where it is absent."""
