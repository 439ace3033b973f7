"""tools/bench/thread_scaling: what it reads from the benchmarks, and its table."""

import pathlib

import pytest

MODEL = """\
GGUF v3 "m", architecture llama: cpu avx2, 2 threads, loaded in 0.74 s, 92.3 MiB packed
prefill 512                  638.0 tok/s  [541.1 .. 716.5]  1.567 ms/token
decode at 1                   44.5 tok/s  [43.2 .. 54.3]  22.497 ms/token
"""
PRODUCTS = """\
q4_k     8192x2048     1     163.96     146.76 us   16.08 GB/s   42 %     57.2 GOP/s   12 %  ok
q4_k     8192x2048    32    1088.33    1074.96 us    2.19 GB/s    6 %    124.9 GOP/s   26 %  ok
q4_k     8192x2048   512    7887.20    7825.40 us    0.30 GB/s    1 %    137.2 GOP/s   29 %  ok
"""


@pytest.fixture
def tool(load_tool):
    return load_tool("thread_scaling", folder="bench")


def test_reads_rates(tool):
    assert tool.model_rates(MODEL) == [638.0, 44.5]
    assert tool.product_rates(PRODUCTS) == [57.2, 124.9, 137.2]


def test_a_line_that_is_missing_or_wrong_is_an_error(tool):
    with pytest.raises(ValueError, match="prefill 512"):
        tool.model_rates(MODEL.replace("prefill 512", "prefill 256"))
    with pytest.raises(ValueError, match=r"\[32\]"):
        tool.product_rates(PRODUCTS.replace("26 %  ok", "26 %  WRONG"))


def test_table_is_relative_to_its_first_row(tool):
    lines = tool.table({1: [100.0, 10, 1, 2, 4], 8: [650.0, 15, 2, 8, 30]}).splitlines()
    assert lines[2].startswith("| 1 | 100 (1.00) | 10 (1.00) |")
    assert lines[3] == "| 8 | 650 (6.50) | 15 (1.50) | 2 (2.00) | 8 (4.00) | 30 (7.50) |"


def test_the_model_is_where_fetch_model_keeps_it(load_tool, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_tool("thread_scaling").MODEL.is_relative_to(tmp_path / "refrain" / "models")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert load_tool("thread_scaling").MODEL.is_relative_to(pathlib.Path.home() / ".cache")


def test_powers_of_two_and_all(tool, monkeypatch):
    for cores, want in ((1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])):
        monkeypatch.setattr(tool.os, "sched_getaffinity", lambda _pid, n=cores: set(range(n)))
        assert tool.default_threads() == want
