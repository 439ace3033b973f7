"""What tools/gpu_check leaves behind: three reports, after every step, whatever programs print."""

import json
import os
import re
import subprocess
import time

import pytest

from fake_gpu_pack import BENCH, FAILS, PASSES, ROOT, Pack, gtest, step


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


# What is said of a case is cut, and a program may print anything, whatever the locale.
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_reports_are_text_whatever_programs_print(pack, locale):
    pack.environment["LANG"] = locale
    pack.step("first", "gtest", gtest(First=f"echo '{'x' * 159}é'; false",
                                      Second="echo 'ö'; false"))
    for kind in ("bench", "gtest"):
        pack.step(kind, kind, "printf 'half of \\303\\n'; exit 1\n")
    _, report = pack.run("--only", b"first,bench,gtest,\xc3")
    (pack.folder / "out/gpu-check.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"Suite\.First: x{159}\?+", step(report, "first")["failed_cases"][0])
    assert step(report, "first")["failed_cases"][1] == "Suite.Second: ??"
    for kind in ("bench", "gtest"):
        assert step(report, kind)["detail"] == "exit status 1: half of ?"
    assert report["command"].endswith("--only first,bench,gtest,?")


def test_reports_are_there_before_the_end(pack):
    pack.step("first", "gtest", PASSES)
    pack.step("second", "gtest", "grep -q first ../out/gpu-check.md && " + PASSES.lstrip())
    _, report = pack.run("--jobs", "1")
    assert step(report, "second")["result"] == "passed"
    assert report["result"] == "passed"


REPORTS = ["gpu-check.json", "gpu-check.log", "gpu-check.md"]


def test_all_else_than_three_reports_is_in_one_folder(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("attention", "bench", BENCH)
    pack.step("peer", "peer", "echo '{\"n_p\": 1}'\n")
    pack.daemon()
    pack.run()
    assert sorted(os.listdir(pack.folder / "out")) == [*REPORTS, "logs"]


# The second step looks at what was copied behind the first, and keeps a link to it, in which nothing
# may be written from then on.
def test_reports_are_copied_whole_after_every_step(pack):
    copies = pack.folder / "copies"
    pack.step("first", "gtest", PASSES)
    pack.step("second", "gtest", gtest(First=f"mkdir kept && ln {copies}/gpu-check.* kept"))
    done, report = pack.run("--jobs", "1", "--copy-to", copies)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(pack.part1 / "kept")) == sorted(os.listdir(copies)) == REPORTS
    for name in REPORTS:
        assert (copies / name).read_bytes() == (pack.folder / "out" / name).read_bytes()
    kept = json.loads((pack.part1 / "kept/gpu-check.json").read_text())
    assert [one["name"] for one in kept["steps"]] == ["first"]
    assert [one["name"] for one in report["steps"]] == ["first", "second"]
    assert "second.log" not in (pack.part1 / "kept/gpu-check.log").read_text()
    assert "| second |" not in (pack.part1 / "kept/gpu-check.md").read_text()


# The disk there is full, or the folder gone: the check goes on.
def test_reports_that_cannot_be_copied_are_told(pack):
    copies = pack.folder / "copies"
    pack.step("first", "gtest", gtest(First=f"rmdir {copies}"))
    done, report = pack.run("--copy-to", copies)
    assert done.returncode == 0 and report["result"] == "passed"
    assert f"gpu-check.json cannot be copied to {copies}" in done.stderr


def test_all_logs_are_in_one_file(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("attention", "bench", "echo tried; exit 1\n")
    pack.run()
    logs = (pack.folder / "out/gpu-check.log").read_text()
    assert "===== first.log" in logs and "off by 2" in logs and "tried" in logs


def test_the_report_has_what_ended_while_others_run(pack):
    pack.step("slow", "gtest", gtest(First="sleep 6"))
    pack.step("quick", "gtest", FAILS)
    pack.write()
    out = pack.folder / "out"
    with subprocess.Popen([ROOT / "tools/gpu_check", "--pack", pack.folder, "--out", out, "--jobs",
                           "2"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as check:
        for _ in range(550):
            if (out / "gpu-check.json").exists():
                break
            time.sleep(0.01)
        report = json.loads((out / "gpu-check.json").read_text())
        assert check.wait(20) == 1
    assert report["result"] == "unfinished, so far: failed"
    assert [one["name"] for one in report["steps"]] == ["quick"]
    assert step(report, "quick")["failed_cases"]
    report = json.loads((out / "gpu-check.json").read_text())
    assert [one["name"] for one in report["steps"]] == ["slow", "quick"]
