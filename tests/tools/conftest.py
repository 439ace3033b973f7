"""The tools are scripts, no package: put their folders on the path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / folder) for folder in ("testing", "check", "bench")]
