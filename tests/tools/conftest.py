"""The tools are scripts, no package: put their folders on the path."""

import importlib.machinery
import importlib.util
import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / folder) for folder in ("testing", "check", "bench")]


@pytest.fixture
def load_tool():
    """Imports a program of tools/bench, or another folder of tools, which has no .py in its name."""
    def load(name: str, folder: str = "bench"):
        loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / folder / name))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
        sys.modules[name] = module  # dataclasses look their module up
        loader.exec_module(module)
        return module

    return load


@pytest.fixture
def signals():
    """SIGINT, SIGTERM and SIGHUP raise RuntimeError until somebody else takes them; then as before."""
    def interrupted(number, _frame):
        raise RuntimeError(f"interrupted by {number}")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupted) for number in numbers]
    yield numbers
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)
