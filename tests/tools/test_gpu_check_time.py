"""tools/gpu_check takes no more time than it is given, from its start to the reports."""

import os
import shutil
import time

import pytest

from fake_gpu_pack import BENCH, PASSES, Pack, gtest, step, with_smollm2


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


def timed(pack, *options):
    began = time.monotonic()
    done, report = pack.run(*options)
    return done, report, time.monotonic() - began


def replace_tool(pack, name, script):
    """Puts a script before the machine's program of that name, which it has as $tool."""
    tools = pack.folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / name).write_text(f"#!/bin/bash\ntool={shutil.which(name)}\n{script}\n")
    (tools / name).chmod(0o755)
    pack.environment["PATH"] = f"{tools}:{pack.environment.get('PATH', os.environ['PATH'])}"


def test_all_of_it_ends_in_the_time_given(pack):
    pack.step("stuck", "gtest", "sleep 40\n", limit_s=30)
    pack.step("next", "gtest", PASSES)
    done, report = pack.run("--seconds", "20", "--jobs", "1")
    assert done.returncode == 1 and report["seconds"] <= 20
    assert "no time left" in step(report, "next")["detail"]


# As one that waits for a kernel without an end.
@pytest.mark.parametrize("kind, answers", [("server", 0), ("server", 1), ("load", 0), ("load", 64)])
def test_a_daemon_that_never_answers_takes_no_more_than_the_time_given(pack, kind, answers):
    with_smollm2(pack)
    pack.daemon(kind, answers=answers)
    done, report = pack.run("--seconds", "20")
    assert done.returncode == 1 and report["seconds"] <= 20
    detail = step(report, kind)["detail"]
    assert "stopped at its limit of " in detail and not detail.endswith(": ")


# 5 of 20 s are left to steps, of which this takes 3, or all.
@pytest.mark.parametrize("wait_s", [3, 40])
def test_unpacking_counts(pack, wait_s):
    xz = pack.part1 / "xz/xz"
    xz.unlink()
    xz.write_text(f'#!/bin/bash\nsleep {wait_s}; exec xz "$@"\n')
    xz.chmod(0o755)
    pack.step("first", "gtest", PASSES)
    done, report = pack.run("--seconds", "20")
    assert done.returncode == 3 and 3 <= report["seconds"] <= 20
    assert step(report, "first")["detail"] == "no time left of 20 s"


def test_a_device_that_does_not_answer_takes_no_more_than_the_time_given(pack):
    pack.program("gpu_info", "sleep 40\n")
    pack.step("first", "gtest", PASSES)
    done, _, seconds = timed(pack, "--seconds", "20")
    assert done.returncode == 3 and seconds <= 20


DEAF = "trap '' TERM; for ((i = 0; i < 400; ++i)); do sleep 0.1; done\n"


@pytest.mark.parametrize("kind, text", [("gtest", gtest(First=DEAF.strip())), ("bench", DEAF)])
def test_a_program_that_does_not_stop_takes_no_more_than_the_time_given(pack, kind, text):
    pack.step("deaf", kind, text, limit_s=60)
    done, report, seconds = timed(pack, "--seconds", "20")
    assert done.returncode == 1 and seconds <= 20
    deaf = step(report, "deaf")
    assert "stopped at " in (deaf["failed_cases"] or [deaf["detail"]])[0]


# As `timeout` does where the program waits inside of the driver and cannot be killed.
def test_a_program_that_cannot_be_killed_is_left_behind(pack):
    replace_tool(pack, "timeout", f'[[ $* == */stuck* ]] || exec "$tool" "$@"\n{DEAF}')
    pack.step("stuck", "bench", BENCH, limit_s=1)
    pack.step("next", "bench", BENCH)
    done, report, seconds = timed(pack, "--seconds", "26")
    assert done.returncode == 1 and seconds <= 26
    assert step(report, "stuck")["detail"] == "stopped at its limit of 1 s"
    assert step(report, "next")["result"] == "passed"


# Two of them, each of which has 15 s to stop elsewhere.
def test_daemons_that_do_not_stop_take_no_more_than_the_time_given(pack):
    pack.daemon("pair")
    before = program = pack.files["bin/pair"]
    program = program.replace("lambda *_: threading.Thread(target=server.shutdown).start()",
                              "signal.SIG_IGN")
    assert program != before
    pack.program("pair", program)
    done, report, seconds = timed(pack, "--seconds", "20")
    assert done.returncode == 1 and seconds <= 20
    assert "it did not stop as it should" in step(report, "pair")["detail"]
