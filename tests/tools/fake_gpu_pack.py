"""A pack of tools/gpu_pack whose programs are scripts, for the tests of tools/gpu_check."""

import hashlib
import json
import lzma
import os
import pathlib
import shutil
import subprocess

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
    """A pack of programs of a line each, which work in part1."""

    def __init__(self, folder, mode="cuda"):
        self.folder = folder
        self.part1 = folder / "part1"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        (self.part1 / "xz").mkdir(parents=True)
        (self.part1 / "xz/xz").symlink_to(shutil.which("xz"))
        self.files = {"tests/data/stories260K/expected_greedy.txt": STORY}  # by their names
        self.manifest = {"backend": mode, "commit": "abc", "built": "today", "flags": "--x"}
        self.steps = []
        self.environment = {}
        self.under = []  # a command that runs gpu_check
        self.program("gpu_info", GPU)

    def program(self, name, text):
        start = "" if text.startswith("#!") else f"#!/bin/bash\ncd {self.part1}\n"
        self.files[f"bin/{name}"] = start + text

    def step(self, name, kind, text, limit_s=20):
        self.program(name, text)
        self.steps.append(f"{name} {kind} {limit_s} bin/{name} --gtest_filter=*cuda*")

    def daemon(self, kind="server", text=STORY, backend="cuda", seconds=(0, 1), most=1000,
               answers=10**6, together=()):
        behaviour = {"text": text, "backend": backend, "seconds": seconds, "most": most,
                     "answers": answers, "together": together}
        self.step(kind, kind, DAEMON.replace("BEHAVIOUR", repr(behaviour)), limit_s=50)

    def write(self):
        contents = {name: text.encode() for name, text in self.files.items()}
        (self.part1 / "files.xz").write_bytes(lzma.compress(b"".join(contents.values())))
        (self.part1 / "files").write_text(
            "".join(f"{len(content)} 755 {name}\n" for name, content in contents.items()))
        steps = "# steps\n" + "\n".join(self.steps) + "\n"
        (self.part1 / "steps").write_text(steps)
        sums = {"sha256_steps": hashlib.sha256(steps.encode()).hexdigest()}
        (self.part1 / "manifest").write_text(
            "".join(f"{key}={value}\n" for key, value in (self.manifest | sums).items()))

    def run(self, *options):
        self.write()
        return self.run_written(*options)

    def run_written(self, *options):
        out = self.folder / "out"
        done = subprocess.run(
            [*self.under, ROOT / "tools/gpu_check", "--pack", self.folder, "--out", out, *options],
            capture_output=True, text=True, errors="replace", timeout=60, cwd=self.folder,
            env={"PATH": os.environ["PATH"], "TMPDIR": self.temporary} | self.environment)
        assert not list(self.temporary.iterdir()), "what was unpacked is left"
        result = out / "gpu-check.json"
        report = json.loads(result.read_text()) if result.exists() else None
        return done, report


def step(report, name):
    return next(s for s in report["steps"] if s["name"] == name)


def with_smollm2(pack, content=b"model"):
    pack.manifest |= {"smollm2_file": "SmolLM2.gguf", "smollm2_pieces": "1",
                      "smollm2_sha256": hashlib.sha256(content).hexdigest()}
    (pack.part1 / "smollm2.1").write_bytes(content)
