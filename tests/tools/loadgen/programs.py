"""The programs that loadgen's end-to-end tests run, by the paths that every such script is given:

    SCRIPT LOADGEN TRIVIAL_RESPONDER REFRAIND_FAKE
"""

import contextlib
import json
import math
import pathlib
import re
import resource
import socket
import subprocess
import sys

LOADGEN, RESPONDER, REFRAIND_FAKE = sys.argv[1:4]
MT_BENCH = "tests/data/load-workloads/mt_bench_head.jsonl"
QMSUM = "tests/data/load-workloads/qmsum_two_meetings.jsonl"
MOONCAKE = "tests/data/cachesim-traces/mooncake_head.jsonl"
SMALL = ["--shared-tokens=20", "--unique-tokens=5", "--output-tokens=4"]
# For the fake daemon. A failure that is read together with the first token would have a status.
FAILING_PROMPTS = ["[[reject=8]]full", "[[delay_ms=300]][[fail_after=2]]broken", "[[hold]]", "well"]
TIMEOUT_S = 60


class Server:
    """A program that says where it listens; ended with the block."""

    def __init__(self, command, pattern):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        for line in self.process.stdout:
            found = re.search(pattern, line)
            if found:
                self.port = int(found.group(1))
                self.grpc_port = int(found.group(2)) if found.re.groups > 1 else None
                self.url = f"http://127.0.0.1:{self.port}"
                return
        raise RuntimeError(f"{command[0]} did not start")

    def wait_for(self, text):
        for line in self.process.stdout:
            if text in line:
                return
        raise RuntimeError(f"no '{text}'")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def is_sanitized(program):
    return b"__ubsan_handle" in pathlib.Path(program).read_bytes()


def responder(*options):
    return Server([RESPONDER, *options], r"listening (\d+)")


def loadgen(*options, expect=0, open_files=None):
    """What it did; with the same load each time unless `options` name another seed."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)

    done = subprocess.run([LOADGEN, "--seed=1", *options], capture_output=True, text=True, timeout=TIMEOUT_S,
                          preexec_fn=limit if open_files else None)
    if done.returncode != expect:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def run_json(url, *options, **how):
    return json.loads(loadgen(f"--url={url}", "--json=-", *options, **how).stdout)


def one_run(url, *options, **how):
    [run] = run_json(url, *options, **how)["runs"]
    return run


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


@contextlib.contextmanager
def port_of_nobody():
    """One that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def distance_from_exponential(times_s, rate):
    """Kolmogorov and Smirnov's, of the gaps between them."""
    gaps = sorted(b - a for a, b in zip(times_s, times_s[1:]))
    law = [1 - math.exp(-rate * gap) for gap in gaps]
    return max(max((i + 1) / len(gaps) - p, p - i / len(gaps)) for i, p in enumerate(law))
