"""tools/gpu_check runs a pack's steps, believes none without proof, and says what it skipped."""

import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from fake_gpu_pack import BENCH, FAILS, NO_GPU, PASSES, ROOT, Pack, gtest, step, with_smollm2


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


def test_everything_that_passes_is_in_both_reports(pack):
    pack.step("conformance", "gtest", PASSES)
    pack.daemon()
    pack.step("attention", "bench", BENCH)
    done, report = pack.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["result"] == "passed"
    assert report["card"]["name"] == "Card" and report["build"]["commit"] == "abc"
    assert step(report, "conformance")["cases_passed"] == 2
    assert report["benchmarks"] == {"attention": {"rows": [1]}}
    table = (pack.folder / "out/gpu-check.md").read_text()
    assert "| card | Card |" in table and "| conformance | passed |" in table
    assert "| row |" in table and f"--pack {pack.folder}" in table


def test_a_benchmark_that_does_not_reach_its_goal_fails_and_shows_its_table(pack):
    pack.step("attention", "bench", BENCH + "echo not reached: row 3; exit 1\n")
    pack.step("model", "bench", "echo out of memory; exit 1\n")
    done, report = pack.run()
    assert done.returncode == 1 and report["result"] == "failed"
    assert step(report, "attention")["detail"] == "exit status 1: not reached: row 3"
    assert step(report, "model")["detail"] == "exit status 1: out of memory"
    assert report["benchmarks"] == {"attention": {"rows": [1]}}
    assert "| row |" in (pack.folder / "out/gpu-check.md").read_text()


def test_without_a_gpu_every_step_says_so(pack):
    pack.program("gpu_info", NO_GPU)
    pack.step("conformance", "gtest", PASSES)
    pack.step("attention", "bench", BENCH)
    done, report = pack.run()
    assert done.returncode == 3
    assert report["result"] == "nothing ran"
    assert {s["detail"] for s in report["steps"]} == {"no GPU: no CUDA driver"}


def test_a_failed_case_fails_the_check_and_is_named(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("second", "gtest", PASSES)
    done, report = pack.run()
    assert done.returncode == 1 and report["result"] == "failed"
    failed = step(report, "first")
    assert (failed["cases_passed"], failed["cases_failed"]) == (2, 1)
    assert failed["detail"] == "1 failed, first: Suite.Second"
    assert failed["failed_cases"] == ["Suite.Second: x.cc:3: Failure; off by 2"]
    assert "Suite.Second: x.cc:3: Failure" in (pack.folder / "out/gpu-check.md").read_text()
    assert step(report, "second")["result"] == "passed"


SKIPS = "skips() { return 7; }; skips"
NOT_OPENED = ("no case for this back end ran, though there is a device: "
              "the program could not open it")


# Test programs leave out, or skip, the cases of a device that they cannot open. gpu_info could.
@pytest.mark.parametrize("kind", ["gtest", "alone"])
@pytest.mark.parametrize("text, detail", [
    (gtest(), NOT_OPENED),
    (gtest(First=SKIPS), "no case for this back end ran: it skipped all that it has, 1 skipped"),
    ("echo nothing at all\n", NOT_OPENED),
])
def test_a_program_without_cases_fails_where_there_is_a_device(pack, kind, text, detail):
    pack.step("conformance", kind, text)
    pack.step("other", "gtest", PASSES)
    done, report = pack.run()
    assert done.returncode == 1 and report["result"] == "failed"
    assert step(report, "conformance")["result"] == "failed"
    assert step(report, "conformance")["detail"].startswith(detail)
    assert step(report, "other")["result"] == "passed"


def test_a_program_without_cases_has_shown_nothing_on_the_emulated_device(tmp_path):
    pack = Pack(tmp_path, "emulated")
    pack.step("conformance", "gtest", gtest())
    done, report = pack.run("--emulated")
    assert done.returncode == 3
    assert step(report, "conformance")["detail"] == "no case for this back end ran"


# A card that lets in one process, and the second of three shards is the first to come.
def test_shards_that_cannot_open_the_device_fail(pack):
    lists = gtest(**{f"Case{i}": "" for i in range(7)})
    pack.program("many", f"[[ $* == *gtest_list_tests* ]] || sleep 0.1\n"
                 f"case $* in *--second*) ;; *) wanted_none=1 ;; esac\n"
                 + lists.replace("failed=0", "failed=0; [[ -z ${wanted_none:-} ]] || wanted=", 1))
    for shard in (1, 2, 3):
        filters = "--second" if shard == 2 else "--gtest_filter=*"
        pack.steps.append(f"many.{shard} gtest 20 bin/many --shard={shard}/3 {filters}")
    done, report = pack.run()
    assert done.returncode == 1 and report["result"] == "failed"
    assert [one["result"] for one in report["steps"]] == ["failed", "passed", "failed"]
    for shard in (1, 3):
        assert step(report, f"many.{shard}")["detail"].startswith(NOT_OPENED)


# It could list its cases and finds the device taken as it is to run them, as GoogleTest prints it.
def test_a_program_that_loses_the_device_behind_its_list_fails(pack):
    pack.step("conformance", "gtest", "[[ $* == *gtest_list_tests* ]] || "
              "{ echo '[  PASSED  ] 0 tests.'; exit 0; }\n" + PASSES)
    done, report = pack.run()
    assert done.returncode == 1
    detail = step(report, "conformance")["detail"]
    assert detail == "its cases did not run: [  PASSED  ] 0 tests., 2 not run"


def test_a_shard_that_gets_no_case_has_not_failed(pack):
    pack.program("few", PASSES)
    for shard in (1, 2, 3):
        pack.steps.append(f"few.{shard} gtest 20 bin/few --shard={shard}/3 --gtest_filter=*")
    done, report = pack.run()
    assert done.returncode == 0
    assert [one["result"] for one in report["steps"]] == ["passed", "passed", "skipped"]
    assert step(report, "few.3")["detail"] == "fewer cases than shards: the others have all 2"


def test_a_sanitizer_without_cases_fails(pack):
    pack.step("sanitizer", "sanitizer", "echo '[  PASSED  ] 0 tests.'\n")
    sanitizer = pack.folder / "compute-sanitizer"
    sanitizer.write_text('#!/bin/bash\nexec "${@:3}"\n')
    sanitizer.chmod(0o755)
    pack.environment["PATH"] = f"{pack.folder}:{os.environ['PATH']}"
    done, report = pack.run()
    assert done.returncode == 1
    assert step(report, "sanitizer")["detail"].startswith(NOT_OPENED)


# A kernel out of bounds spoils whatever its process does from then on; so does one that hangs.
def test_no_case_spoils_those_behind_it(pack):
    spoils = "spoiled=1; false"
    crashes = "echo 'illegal address' >&2; kill -SEGV $$"
    hangs = "sleep 40"
    fine = "[[ -z ${spoiled:-} ]]"
    pack.step("attention", "gtest", gtest(A="", B=spoils, C=fine, D=crashes, E=fine, F=hangs,
                                          G=fine, H="exit 5", I=fine), limit_s=30)
    done, report = pack.run("--case-seconds", "2")
    attention = step(report, "attention")
    assert done.returncode == 1
    assert (attention["cases_passed"], attention["cases_failed"]) == (5, 4), attention
    b, d, f, h = attention["failed_cases"]
    assert b.startswith("Suite.B: ") and h == "Suite.H: the program ended with status 5"
    assert d == "Suite.D: the program ended with status 139; illegal address"
    assert f == "Suite.F: nothing for 2 s: it hangs"


# A process for each case costs a second on a GPU: where all fail, a few of their own will do.
def test_many_failures_share_processes(pack):
    cases = {f"C{i}": "false" if i % 4 else "" for i in range(40)}
    pack.step("attention", "gtest", "echo >> starts\n" + gtest(**cases))
    _, report = pack.run()
    attention = step(report, "attention")
    assert (attention["cases_passed"], attention["cases_failed"]) == (10, 30)
    assert len((pack.part1 / "starts").read_text().splitlines()) == 1 + 12 + 1


# Where a container mounts the driver, its libraries are often found by this variable alone.
def test_programs_find_the_machines_libraries_too(pack):
    pack.environment["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib64"
    pack.step("first", "gtest",
              gtest(First='[[ $LD_LIBRARY_PATH == */lib:/usr/local/nvidia/lib64 ]]'))
    pack.program("gpu_info", 'echo name=$LD_LIBRARY_PATH\n')
    _, report = pack.run()
    assert step(report, "first")["result"] == "passed"
    assert report["card"]["name"].endswith("/lib:/usr/local/nvidia/lib64")


def test_a_sanitizer_that_does_not_know_the_device_is_skipped(pack):
    pack.step("sanitizer", "sanitizer", PASSES)
    sanitizer = pack.folder / "compute-sanitizer"
    sanitizer.write_text("#!/bin/bash\necho '========= Error: Device not supported'; exit 255\n")
    sanitizer.chmod(0o755)
    pack.environment["PATH"] = f"{pack.folder}:{os.environ['PATH']}"
    _, report = pack.run()
    assert step(report, "sanitizer")["result"] == "skipped"
    assert "does not support" in step(report, "sanitizer")["detail"]


def test_a_crash_after_the_cases_fails(pack):
    pack.step("conformance", "gtest", PASSES + "echo device is gone; exit 6\n")
    done, report = pack.run()
    assert done.returncode == 1
    assert step(report, "conformance")["detail"] == "exit status 6: device is gone"


def test_a_step_is_stopped_at_its_limit(pack):
    pack.step("stuck", "gtest", "sleep 40\n", limit_s=1)
    pack.step("next", "gtest", PASSES)
    done, report = pack.run()
    assert done.returncode == 1
    assert "stopped at the limit of 1 s" in step(report, "stuck")["detail"]
    assert step(report, "next")["result"] == "passed"


# Each waits for the other.
def test_test_programs_run_at_a_time(pack):
    for name, other in (("first", "second"), ("second", "first")):
        pack.step(name, "gtest", gtest(
            First=f"touch {name}.here; for ((i = 0; i < 150; ++i)); do "
            f"[[ -e {other}.here ]] && break; sleep 0.1; done; sleep 1; [[ -e {other}.here ]]"))
    done, report = pack.run("--jobs", "2")
    assert done.returncode == 0
    for name in ("first", "second"):
        assert step(report, name)["result"] == "passed" and step(report, name)["seconds"] >= 1


def count_beside(seconds):
    """A case that says how many run while it does, itself included."""
    return (f"mkdir -p beside; touch beside/$$; sleep {seconds}; ls beside > seen.$$; sleep 0.5;"
            " rm beside/$$; echo beside=$(wc -l < seen.$$)")


# A benchmark among them runs alone, and whoever is behind it waits for its end.
def test_no_more_run_at_a_time_than_said_and_benchmarks_alone(pack):
    for name in ("first", "second", "third"):
        pack.step(name, "gtest", gtest(First=count_beside(1)))
    pack.step("bench", "bench", count_beside(0) + "\n" + BENCH)
    pack.step("last", "gtest", gtest(First=count_beside(0)))
    done, report = pack.run("--jobs", "2")
    assert done.returncode == 0
    assert [one["name"] for one in report["steps"]] == ["first", "second", "third", "bench", "last"]
    logs = {one["name"]: (pack.folder / f"out/logs/{one['name']}.log").read_text()
            for one in report["steps"]}
    beside = {name: int(re.search(r"beside=(\d+)", log)[1]) for name, log in logs.items()}
    assert beside == {"first": 2, "second": 2, "third": 1, "bench": 1, "last": 1}


# One that takes a card's memory leaves nothing to others: they run before it or behind it.
def test_what_is_to_run_alone_does(pack):
    for name, kind in (("first", "gtest"), ("full", "alone"), ("last", "gtest")):
        pack.step(name, kind, gtest(First=count_beside(1)))
    done, report = pack.run("--jobs", "4")
    assert done.returncode == 0
    for name in ("first", "full", "last"):
        assert "beside=1" in (pack.folder / f"out/logs/{name}.log").read_text()
        assert step(report, name)["cases_passed"] == 1


def test_a_program_may_be_cut_in_shards(pack):
    names = [f"Case{i}" for i in range(7)]
    pack.program("many", gtest(**{name: "" for name in names}))
    for shard in (1, 2, 3):
        pack.steps.append(f"many.{shard} gtest 20 bin/many --shard={shard}/3 --gtest_filter=*")
    pack.step("other", "gtest", PASSES)
    done, report = pack.run("--only", "many")
    assert done.returncode == 0
    assert [step(report, f"many.{i}")["cases_passed"] for i in (1, 2, 3)] == [3, 2, 2]
    logs = "".join((pack.folder / f"out/logs/many.{i}.log").read_text() for i in (1, 2, 3))
    assert sorted(re.findall(r"OK \] Suite.(\w+)", logs)) == names
    assert step(report, "other")["detail"] == "not asked for"


@pytest.mark.parametrize("change, detail", [
    ({"text": "Another story. " * 40}, "not the documented one"),
    ({"backend": "cpu"}, "does not compute on the CUDA back end"),
    ({"text": ""}, "not the documented one"),
])
def test_a_server_that_does_not_answer_as_it_should_fails(pack, change, detail):
    pack.daemon(**change)
    done, report = pack.run()
    assert done.returncode == 1
    assert detail in step(report, "server")["detail"]


def test_two_daemons_on_one_card_answer(pack):
    pack.daemon("pair")
    done, report = pack.run()
    assert done.returncode == 0, done.stdout + done.stderr
    detail = step(report, "pair")["detail"]
    assert detail == "two daemons: 200 tokens as documented, 8 at once alike"
    logs = pack.folder / "out/logs"
    assert "listening" in (logs / "pair.log").read_text()
    assert "listening" in (logs / "pair.second.log").read_text()


# The second is the one that finds the card as the first has left it.
@pytest.mark.parametrize("change, detail", [
    (("", "echo no room for the model; exit 1\n"), "the second one: did not start: no room"),
    (("'cuda'", "'cpu'"), "the second one: it does not compute on the CUDA back end"),
    (("Once upon", "Once more"), "the text is not the documented one: Once more"),
])
def test_a_second_daemon_that_is_not_as_the_first_fails(pack, change, detail):
    pack.daemon("pair")
    first = pack.files["bin/pair"]
    pack.program("first", first)
    pack.program("second", first.replace(*change) if change[0] else change[1])
    pack.program("pair", "program=second; ! mkdir started 2> /dev/null || program=first\n"
                 "exec $(dirname $(realpath $0))/$program\n")
    done, report = pack.run()
    assert done.returncode == 1
    assert step(report, "pair")["detail"].startswith(detail)


def test_a_daemon_that_does_not_start_is_quoted(pack):
    pack.step("server", "server", "echo no such device; exit 1\n")
    _, report = pack.run()
    assert step(report, "server")["detail"] == "did not start: no such device"


def test_a_device_that_seldom_waits_for_the_host_passes(pack):
    with_smollm2(pack)
    pack.daemon("load", seconds=(1.9e-5, 0.001))
    done, report = pack.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the device waits for the host 1.9" in step(report, "load")["detail"]
    assert " of its steps, of which 64 were launched one by one;" in step(report, "load")["detail"]


@pytest.mark.parametrize("change, detail", [
    ({"seconds": (0.00003, 0.001)}, "not reached: "),
    ({"seconds": (0, 0)}, "the device's clock counted no step"),
    ({"most": 191}, "answer 0 of 64 has not 192 tokens"),
    ({"backend": "cpu"}, "does not compute on the CUDA back end"),
])
def test_a_server_that_is_late_or_falls_short_under_load_fails(pack, change, detail):
    with_smollm2(pack)
    pack.daemon("load", **change)
    done, report = pack.run()
    assert done.returncode == 1
    assert detail in step(report, "load")["detail"]


# Tokens (another one or the same) and log-probabilities, by their place, of those asked at once.
# Alone each token has -0.5, another one -0.75 and a third -2.
@pytest.mark.parametrize("together, detail", [
    ([], "2048 of 2048 tokens as alone, log-probabilities within 0.000"),
    ([(3, None, -0.25), (31, None, -0.875)],
     "2048 of 2048 tokens as alone, log-probabilities within 0.375"),
    ([(9, "token_id:1", -0.6)], "576 of 2048 tokens as alone, log-probabilities within 0.000"),
    ([(9, "token_id:1", -0.6), (10, None, -9)], "576 of 2048 tokens as alone"),
])
def test_answers_at_once_may_differ_by_rounding(pack, together, detail):
    with_smollm2(pack)
    pack.daemon("load", together=together)
    done, report = pack.run()
    assert done.returncode == 0, step(report, "load")
    assert detail in step(report, "load")["detail"]


@pytest.mark.parametrize("together, detail", [
    ([(7, None, -0.95)], "token 7 of load.answer0, by 0.450 in its log-probability"),
    ([(7, None, 0)], "token 7 of load.answer0, by 0.500 in its log-probability"),
    ([(i, None, -0.625) for i in range(32)], "log-probabilities are off by 0.125 in the mean"),
    ([(7, "token_id:2", -2)], "token 7 of load.answer0 was less probable by 1.500"),
    ([(7, "token_id:3", -0.5)], "token 7 of load.answer0 was not among the five most probable"),
    ([(7, "token_id:1", -0.75)], "448 of 2048 tokens are the same"),
])
def test_answers_at_once_that_are_others_fail(pack, together, detail):
    with_smollm2(pack)
    pack.daemon("load", together=together)
    done, report = pack.run()
    assert done.returncode == 1
    assert "otherwise than alone: " + detail in step(report, "load")["detail"]


def test_without_the_model_there_is_no_load(pack):
    pack.daemon("load")
    _, report = pack.run()
    assert step(report, "load")["result"] == "skipped"


# A byte of the packed files is another one, or some are missing, in them or in what unpacks them.
@pytest.mark.parametrize("name, damage", [
    ("files.xz", lambda content: content[:-60] + bytes([content[-60] ^ 1]) + content[-59:]),
    ("files.xz", lambda content: content[:-1]),
    ("files.xz", lambda content: content + b"x"),
    ("files.xz", lambda content: b""),
    ("files", lambda content: content[:content.rindex(b"\n", 0, -1) + 1]),
    ("files", lambda content: b"1" + content),
    ("xz/xz", lambda content: b"no program"),
])
def test_a_damaged_pack_is_refused(pack, name, damage):
    pack.step("first", "gtest", PASSES)
    pack.run()
    shutil.rmtree(pack.folder / "out")
    path = pack.part1 / name
    content = damage(path.read_bytes())
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o755)
    done, report = pack.run_written()
    assert done.returncode == 2 and report is None
    assert f"{pack.part1}/files.xz cannot be unpacked into {pack.temporary}/" in done.stderr


# Steps that are missing would not fail, and without what is missing of the manifest they pass unseen.
@pytest.mark.parametrize("name, message", [
    ("steps", "steps is not what was packed"), ("manifest", "manifest is not whole")])
def test_a_list_that_was_cut_short_is_refused(pack, name, message):
    pack.step("first", "gtest", PASSES)
    pack.step("second", "gtest", FAILS)
    pack.write()
    lines = (pack.part1 / name).read_text().splitlines(keepends=True)
    (pack.part1 / name).write_text("".join(lines[:-1]))
    done, report = pack.run_written()
    assert done.returncode == 2 and report is None
    assert f"{pack.part1}/{message}" in done.stderr


def test_programs_that_were_put_into_a_pack_run(pack):
    pack.steps.append("peer peer 20 bin/peer")
    (pack.part1 / "bin").mkdir()
    (pack.part1 / "bin/peer").write_text("#!/bin/bash\necho '{\"n_p\": 1}'\n")
    (pack.part1 / "bin/peer").chmod(0o755)
    _, report = pack.run()
    assert report["benchmarks"]["peer"] == {"rows": [{"n_p": 1}]}


def smollm2(pack, pieces, content=b"model"):
    pack.manifest |= {"smollm2_file": "SmolLM2.gguf", "smollm2_pieces": "2",
                      "smollm2_sha256": hashlib.sha256(content).hexdigest()}
    for number, piece in pieces.items():
        folder = pack.folder / f"part{number + 1}"
        folder.mkdir()
        (folder / f"smollm2.{number}").write_bytes(piece)
    pack.step("smollm2", "smollm2",
              '[[ $(< "$XDG_CACHE_HOME/refrain/models/SmolLM2.gguf") == model ]] && ' + PASSES)
    return pack.run()


def test_the_pieces_of_smollm2_are_joined(pack):
    done, report = smollm2(pack, {1: b"mo", 2: b"del"})
    assert done.returncode == 0
    assert step(report, "smollm2")["result"] == "passed"


def test_a_missing_piece_of_smollm2_is_said(pack):
    _, report = smollm2(pack, {1: b"mo"})
    assert step(report, "smollm2")["result"] == "skipped"
    assert "1 of 2 pieces" in step(report, "smollm2")["detail"]


# Each of its cases opens the device anew.
def test_smollm2_that_finds_the_device_for_some_cases_alone_fails(pack):
    with_smollm2(pack)
    pack.step("smollm2", "smollm2", gtest(First="", Second=SKIPS))
    done, report = pack.run()
    assert done.returncode == 1
    assert step(report, "smollm2")["detail"] == "1 cases; the others found no back end, 1 skipped"


def test_damaged_pieces_of_smollm2_are_no_reason_to_skip(pack):
    pack.daemon("load")
    done, report = smollm2(pack, {1: b"mo", 2: b"dal"})
    assert done.returncode == 1 and report["result"] == "failed"
    for name in ("smollm2", "load"):
        assert step(report, name)["result"] == "failed"
        assert "another checksum" in step(report, name)["detail"]


def test_a_benchmark_without_a_table_fails(pack):
    pack.step("attention", "bench", "true\n")
    done, report = pack.run()
    assert done.returncode == 1
    assert step(report, "attention")["detail"] == "wrote no table"


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# The one that a terminal's Ctrl-C sends goes to all that runs in front, the others to the script alone.
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", ["server", "bench", "gtest"])
def test_nothing_stays_on_the_card_where_it_is_stopped(pack, kind, number):
    pack.step(kind, kind, "echo $$ > pid.new; mv pid.new pid; exec sleep 60\n",
              limit_s=60)
    pack.write()
    with subprocess.Popen(
            [ROOT / "tools/gpu_check", "--pack", pack.folder, "--out", pack.folder / "out"],
            stderr=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"TMPDIR": str(pack.temporary)},
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as check:
        pid_file = pack.part1 / "pid"
        for _ in range(1000):
            if pid_file.exists():
                break
            time.sleep(0.01)
        (os.killpg if number == signal.SIGINT else os.kill)(check.pid, number)
        assert check.wait(60) == (130 if number == signal.SIGINT else -number)
    pid = int(pid_file.read_text())
    for _ in range(500):
        if not is_running(pid):
            break
        time.sleep(0.01)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail(f"{kind} still runs")
    assert not list(pack.temporary.iterdir())


def test_steps_can_be_chosen(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("second", "gtest", PASSES)
    done, report = pack.run("--only", "second")
    assert done.returncode == 0
    assert step(report, "first")["detail"] == "not asked for"


@pytest.mark.parametrize("options", [["--emulated"], ["--what"], ["--copy-to", "/dev/null/x"], ["--seconds", "soon"],
                                     ["--seconds", "19"], ["--jobs", "0"]])
def test_options_that_do_not_fit_are_refused(pack, options):
    pack.step("conformance", "gtest", PASSES)
    done, report = pack.run(*options)
    assert done.returncode == 2 and report is None and done.stderr


def test_an_emulated_pack_needs_no_gpu(tmp_path):
    pack = Pack(tmp_path, "emulated")
    pack.program("gpu_info", NO_GPU)
    pack.step("conformance", "gtest", PASSES)
    pack.daemon()
    done, report = pack.run("--emulated")
    assert done.returncode == 0, done.stdout
    assert report["mode"] == "emulated" and report["card"]["name"] == "emulated device"
