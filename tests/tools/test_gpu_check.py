"""tools/gpu_check runs a pack's steps, believes none without proof, and says what it skipped."""

import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORY = 'Once upon a time, "Lily" found\na ball. ' * 10

GPU = "echo name=Card\necho driver=13.0\necho capability=9.0\necho memory_mib=1\n"
NO_GPU = "echo no CUDA driver; exit 3\n"


def gtest(**cases):
    """A test program: what its cases of Suite print and do; one that says false fails."""
    bodies = "".join(f"    {name}) {body or 'true'} ;;\n" for name, body in cases.items())
    names = " ".join(cases)
    return f"""
wanted="{names}" failed=0 first=
case "$*" in *--gtest_list_tests*)
  echo 'Running main() from gtest_main.cc'
  [[ -z $wanted ]] || {{ echo 'Suite.'; printf '  %s  # a value\\n' $wanted; }}
  exit 0 ;;
esac
for word in "$@"; do
  [[ $word != --gtest_flagfile=* ]] || wanted=$(tr : ' ' < "${{word#*=}}")
done
for name in ${{wanted#*=}}; do
  name=${{name#Suite.}}
  echo "[ RUN      ] Suite.$name"
  if ((failed)) && [[ $* == *--gtest_fail_fast* ]]; then
    echo "[  SKIPPED ] Suite.$name (0 ms)"
    continue
  fi
  case $name in
{bodies}  esac
  status=$?
  if ((status == 7)); then
    echo "[  SKIPPED ] Suite.$name (1 ms)"
  elif ((status == 0)); then
    echo "[       OK ] Suite.$name (1 ms)"
  else
    echo "[  FAILED  ] Suite.$name, where GetParam() = 3 (1 ms)"
    failed=1 first=${{first:-$name}}
  fi
done
if ((failed)); then
  echo '[  FAILED  ] 1 test, listed below:'
  echo "[  FAILED  ] Suite.$first, where GetParam() = 3"
  exit 1
fi
"""


PASSES = gtest(First="", Second="")
FAILS = gtest(First="", Second="echo 'x.cc:3: Failure'; echo 'off by 2'; false", Third="")
BENCH = ('while (($#)); do case $1 in --json) echo "{\\"rows\\": [1]}" > "$2" ;;'
         ' --markdown) echo "| row |" > "$2" ;; esac; shift; done\n')

# A daemon that answers every completion with the story, as its arguments in the file say.
DAEMON = '''#!/usr/bin/env python3
import http.server, json, pathlib, signal, sys, threading
behaviour = BEHAVIOUR
stuck = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    answers = 0
    def do_GET(self): self.reply(self.metrics() if self.path == "/metrics" else b"ok")
    def metrics(self):
        idle, steps = (Handler.answers * per_answer for per_answer in behaviour["seconds"])
        return (f"# TYPE refrain_device_idle_seconds_total counter\\n"
                f"refrain_device_idle_seconds_total {idle:g}\\n"
                f"refrain_device_unrecorded_steps_total {Handler.answers}\\n"
                f"refrain_device_step_seconds_total {steps:g}\\n").encode()
    def do_POST(self):
        Handler.answers += 1
        if Handler.answers > behaviour["answers"]: stuck.wait()
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = request["max_tokens"]
        text = behaviour["text"][:3 * count]
        logprobs = self.logprobs(request, count) if "logprobs" in request else None
        self.reply(json.dumps({"choices": [{"text": " " + text, "logprobs": logprobs}],
                               "usage": {"completion_tokens": min(count, behaviour["most"])}},
                              separators=(",", ":")).encode())
    def logprobs(self, request, count):
        own = sum(request["prompt"].encode()) * 100
        tokens = [[f"token_id:{own + i}", -0.5] for i in range(count)]
        tops = [{token: value, "token_id:1": -0.75, "token_id:2": -2.0} for token, value in tokens]
        if request["cache_salt"] == "together":
            for i, token, value in behaviour["together"]: tokens[i] = [token or tokens[i][0], value]
        return {"tokens": [token for token, _ in tokens], "token_logprobs": [v for _, v in tokens],
                "top_logprobs": tops, "text_offset": [0] * count}
    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
Handler.protocol_version = "HTTP/1.1"
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"info listening http=127.0.0.1:{server.server_port}", flush=True)
print(f'info ready model=m description="tensors; {behaviour["backend"]} x, 1 MiB"', flush=True)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
'''


class Pack:
    """A pack of programs of a line each."""

    def __init__(self, folder, mode="cuda"):
        self.folder = folder
        self.part1 = folder / "part1"
        story = self.part1 / "tests/data/stories260K/expected_greedy.txt"
        story.parent.mkdir(parents=True)
        story.write_text(STORY)
        (self.part1 / "bin").mkdir()
        self.manifest = {"backend": mode, "commit": "abc", "built": "today", "flags": "--x"}
        self.steps = []
        self.environment = {}
        self.program("gpu_info", GPU)

    def program(self, name, text):
        path = self.part1 / "bin" / name
        path.write_text(text if text.startswith("#!") else "#!/bin/bash\n" + text)
        path.chmod(0o755)

    def step(self, name, kind, text, limit_s=20):
        self.program(name, text)
        self.steps.append(f"{name} {kind} {limit_s} bin/{name} --gtest_filter=*cuda*")

    def daemon(self, kind="server", text=STORY, backend="cuda", seconds=(0, 1), most=1000,
               answers=10**6, together=()):
        behaviour = {"text": text, "backend": backend, "seconds": seconds, "most": most,
                     "answers": answers, "together": together}
        self.step(kind, kind, DAEMON.replace("BEHAVIOUR", repr(behaviour)), limit_s=50)

    def write(self):
        (self.part1 / "manifest").write_text(
            "".join(f"{key}={value}\n" for key, value in self.manifest.items()))
        (self.part1 / "steps").write_text("# steps\n" + "\n".join(self.steps) + "\n")

    def run(self, *options):
        self.write()
        out = self.folder / "out"
        done = subprocess.run(
            [ROOT / "tools/gpu_check", "--pack", self.folder, "--out", out, *options],
            capture_output=True, text=True, timeout=60, cwd=self.folder,
            env={"PATH": os.environ["PATH"]} | self.environment)
        result = out / "gpu-check.json"
        report = json.loads(result.read_text()) if result.exists() else None
        return done, report


@pytest.fixture(name="pack")
def pack_of_cuda(tmp_path):
    return Pack(tmp_path)


def step(report, name):
    return next(s for s in report["steps"] if s["name"] == name)


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


@pytest.mark.parametrize("text, detail", [
    (gtest(), "no case for this back end"),
    (gtest(First="exit_skipped() { return 7; }; exit_skipped"), "no case for this back end"),
    ("echo nothing at all\n", "no case for this back end"),
])
def test_a_program_without_cases_has_not_passed(pack, text, detail):
    pack.step("conformance", "gtest", text)
    done, report = pack.run()
    assert done.returncode == 3
    assert detail in step(report, "conformance")["detail"]


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


def test_reports_are_there_before_the_end(pack):
    pack.step("first", "gtest", PASSES)
    pack.step("second", "gtest", "grep -q first ../out/gpu-check.md && " + PASSES.lstrip())
    _, report = pack.run("--jobs", "1")
    assert step(report, "second")["result"] == "passed"
    assert report["result"] == "passed"


def test_all_logs_are_in_one_file(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("attention", "bench", "echo tried; exit 1\n")
    pack.run()
    logs = (pack.folder / "out/gpu-check.log").read_text()
    assert "===== first.log" in logs and "off by 2" in logs and "tried" in logs


# Where a container mounts the driver, its libraries are often found by this variable alone.
def test_programs_find_the_machines_libraries_too(pack):
    pack.environment["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib64"
    pack.step("first", "gtest",
              gtest(First='[[ $LD_LIBRARY_PATH == */part1/lib:/usr/local/nvidia/lib64 ]]'))
    pack.program("gpu_info", 'echo name=$LD_LIBRARY_PATH\n')
    _, report = pack.run()
    assert step(report, "first")["result"] == "passed"
    assert report["card"]["name"].endswith("/part1/lib:/usr/local/nvidia/lib64")


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


def test_test_programs_run_at_a_time(pack):
    for name in ("first", "second"):
        pack.step(name, "gtest", gtest(First="sleep 3"))
    began = time.monotonic()
    done, report = pack.run("--jobs", "2")
    assert time.monotonic() - began < 5
    assert done.returncode == 0
    for name in ("first", "second"):
        assert step(report, name)["result"] == "passed" and step(report, name)["seconds"] >= 3


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


def test_all_of_it_ends_in_the_time_given(pack):
    pack.step("stuck", "gtest", "sleep 40\n", limit_s=30)
    pack.step("next", "gtest", PASSES)
    done, report = pack.run("--seconds", "4", "--jobs", "1")
    assert done.returncode == 1 and report["seconds"] < 10
    assert "no time left" in step(report, "next")["detail"]


# As one that waits for a kernel without an end.
@pytest.mark.parametrize("kind, answers", [("server", 0), ("server", 1), ("load", 0), ("load", 64)])
def test_a_daemon_that_never_answers_takes_no_more_than_the_time_given(pack, kind, answers):
    with_smollm2(pack)
    pack.daemon(kind, answers=answers)
    done, report = pack.run("--seconds", "4")
    assert done.returncode == 1 and report["seconds"] < 10
    detail = step(report, kind)["detail"]
    assert "stopped at its limit of " in detail and not detail.endswith(": ")


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
    first = (pack.part1 / "bin/pair").read_text()
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


def with_smollm2(pack, content=b"model"):
    pack.manifest |= {"smollm2_file": "SmolLM2.gguf", "smollm2_pieces": "1",
                      "smollm2_sha256": hashlib.sha256(content).hexdigest()}
    (pack.part1 / "smollm2.1").write_bytes(content)


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


def test_programs_may_be_in_later_parts(pack):
    for name in ("first", "second"):
        pack.step(name, "gtest", PASSES)
        pack.manifest[f"program_{name}"] = {"first": "part4", "second": "part5"}[name]
    (pack.folder / "part4/bin").mkdir(parents=True)
    (pack.part1 / "bin/first").rename(pack.folder / "part4/bin/first")
    (pack.part1 / "bin/second").unlink()
    _, report = pack.run()
    assert step(report, "first")["result"] == "passed"
    assert step(report, "second")["result"] == "skipped"
    assert step(report, "second")["detail"] == "its program is in part5, which is not here"


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
    assert not (pack.folder / "out/cache").exists()


def own_rows(rows):
    """attention_bench's table as GpuReport writes it, of (n_p, n_s): microseconds."""
    table = [{"n_p": float(n_p), "n_s": float(n_s), "MB": 1.5, "bound us": 2.0, "two_phase us": us,
              "paged us": 9e9} for (n_p, n_s), us in rows.items()]
    text = json.dumps({"card": "x", "tables": {"decode": table}}, indent=2)
    return (f"while (($#)); do case $1 in --json) cat > \"$2\" <<'END'\n{text}\nEND\n ;;"
            " --markdown) echo '| row |' > \"$2\" ;; esac; shift; done\n")


def peer_rows(rows):
    """flashinfer_bench's lines, of (n_p, n_s): its (plain, cascade) microseconds."""
    return "".join(f"""echo '{{"n_p": {n_p}, "n_s": {n_s}, "plain_us": {plain:.2f}, '"""
                   f"""'"cascade_us": {cascade:.2f}, "card": "x"}}'\n"""
                   for (n_p, n_s), (plain, cascade) in rows.items())


# Geometric means: 0.35 and 1.4 of cascade's time are 0.7 of it. Of plain decode's every row counts.
@pytest.mark.parametrize("ours, result, detail", [
    ({(1024, 0): 300.0, (1024, 512): 34.9, (1024, 1024): 139.9}, "passed",
     "within 0.7 of cascade's time in 2"),
    ({(1024, 0): 300.0, (1024, 512): 35.1, (1024, 1024): 140.1}, "failed", "0.7 of cascade's time"),
    ({(1024, 0): 306.1, (1024, 512): 34.9, (1024, 1024): 139.9}, "failed",
     "than plain decode's time at n_p 1024, n_s 0"),
    ({(1024, 0): 300.0, (1024, 512): 3.0, (1024, 1024): 306.1}, "failed",
     "than plain decode's time at n_p 1024, n_s 1024"),
    ({(1024, 0): 300.0, (1024, 512): 1e7, (1024, 1024): 0.001}, "failed", "0.7 of cascade's time"),
    ({(1024, 512): 34.9, (1024, 1024): 139.9}, "failed", 'not compared: {"n_p": 1024, "n_s": 0'),
    ({(1024, 0): 300.0, (2048, 512): 34.9}, "failed", 'not compared: {"n_p": 1024, "n_s": 1024'),
])
def test_a_peers_rows_are_joined_with_our_own_and_judged(pack, ours, result, detail):
    pack.step("attention_bench", "bench", own_rows(ours))
    pack.step("flashinfer", "peer", peer_rows({
        (1024, 0): (300, 0), (1024, 512): (300, 100), (1024, 1024): (300, 100)}))
    done, report = pack.run()
    judged = step(report, "flashinfer")
    assert (judged["result"], done.returncode) == (result, int(result == "failed")), judged
    assert detail in judged["detail"]
    assert len(report["benchmarks"]["flashinfer"]["rows"]) == 3


def test_a_peer_is_not_compared_with_what_an_earlier_run_left(pack):
    pack.step("attention_bench", "bench", own_rows({(1024, 0): 1.0, (1024, 512): 1.0}))
    pack.step("flashinfer", "peer", peer_rows({(1024, 0): (300, 0), (1024, 512): (300, 100)}))
    _, report = pack.run()
    assert step(report, "flashinfer")["result"] == "passed"
    _, report = pack.run("--only", "flashinfer")
    assert step(report, "flashinfer")["result"] == "skipped"
    assert set(report["benchmarks"]) == {"flashinfer"}


def test_a_peers_lines_go_into_the_report(pack):
    pack.step("flashinfer", "peer", "echo warming up; echo '{\"n_p\": 1}'; echo '{\"n_p\": 2}'\n")
    pack.step("broken", "peer", "echo no memory\n")
    pack.step("absent", "peer", "")
    (pack.part1 / "bin/absent").unlink()
    _, report = pack.run()
    assert report["benchmarks"] == {"flashinfer": {"rows": [{"n_p": 1}, {"n_p": 2}]}}
    assert "not compared" in step(report, "flashinfer")["detail"]
    assert step(report, "broken")["result"] == "failed"
    assert step(report, "absent")["result"] == "skipped"


def test_steps_can_be_chosen(pack):
    pack.step("first", "gtest", FAILS)
    pack.step("second", "gtest", PASSES)
    done, report = pack.run("--only", "second")
    assert done.returncode == 0
    assert step(report, "first")["detail"] == "not asked for"


@pytest.mark.parametrize("options", [["--emulated"], ["--what"], ["--seconds", "soon"],
                                     ["--jobs", "0"]])
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


def pack(folder, *options, **how):
    """tools/gpu_pack in `folder`, with programs and a build that are none."""
    tools = folder / "tools"
    tools.mkdir()
    text = (ROOT / "tools" / "gpu_pack").read_text()
    for label in {"//tools/bench:gpu_info", *re.findall(r"//[\w/]+:\w+", text)}:
        program = folder / "bin" / label[2:].replace(":", "/")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("program")
    for name, script in {"bazel": f"[ $1 = build ] || echo {folder}/bin", "strip": ""}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    return subprocess.run(
        [ROOT / "tools" / "gpu_pack", "--out", "pack", *options], cwd=folder, text=True,
        capture_output=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, **how)


def test_gpu_pack_takes_a_model_beside_who_calls_it(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"model of bytes")
    done = pack(tmp_path, "--model", "model.gguf")
    assert done.returncode == 0, done.stderr
    parts = [tmp_path / "pack" / f"part{n}" / f"smollm2.{n - 1}" for n in (2, 3)]
    assert b"".join(part.read_bytes() for part in parts) == b"model of bytes"
    assert "smollm2_file=model.gguf\n" in (tmp_path / "pack" / "part1" / "manifest").read_text()


# As on a full disk: the rest of the pack is smaller than the limit.
def test_gpu_pack_fails_where_the_model_cannot_be_written(tmp_path):
    limit = 8 << 20
    with open(tmp_path / "model.gguf", "wb") as model:
        model.truncate(3 * limit)
    done = pack(tmp_path, "--model", "model.gguf", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1
    assert "tools/gpu_pack: " in done.stderr and "smollm2.1 cannot be written" in done.stderr


def test_gpu_pack_refuses_a_model_that_is_none_before_it_builds(tmp_path):
    done = pack(tmp_path, "--model", "none.gguf")
    assert done.returncode == 2
    assert done.stderr == "tools/gpu_pack: --model is 'none.gguf', which cannot be read\n"
