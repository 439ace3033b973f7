"""loadgen with lines of one's own (arguments: programs.py)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from programs import (LOADGEN, REFRAIND_FAKE, TIMEOUT_S, Server, json_lines, loadgen, one_run,
                      responder, run_json)

# As docs/load-testing.md has them.
OWN_LINES = """{"prompt": "Once upon", "max_tokens": 32, "start_s": 0.5}
{"prompt": [17, 4, 99], "max_tokens": 8}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
{"turns": [{"prompt": "Hi"}, {"prompt": "And then?", "think_s": 3}]}
"""


class OwnLines(unittest.TestCase):
    """Forms in which lines of one's own go over the wire."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.lines = self.folder / "lines.jsonl"
        self.lines.write_text(OWN_LINES)
        self.log = self.folder / "log"
        self.load = ["--workload=jsonl", f"--file={self.lines}", "--rate=100"]

    def test_the_documented_ones_run_as_they_are(self):
        with responder(f"--log={self.log}") as server:
            result = run_json(server.url, *self.load)
        run = result["runs"][0]
        self.assertEqual((run["completed"], run["failed"]), (5, 0))
        self.assertEqual(result["prompt_form"], "auto")
        bodies = json_lines(self.log)
        self.assertEqual([body.get("prompt") for body in bodies],
                         ["Once upon", [17, 4, 99], None, None, None])
        self.assertEqual([len(body.get("messages", [])) for body in bodies], [0, 0, 2, 1, 3])

    def test_a_server_takes_them_each_as_it_is_meant(self):
        with Server([REFRAIND_FAKE, "--model", "fake", "--listen", "127.0.0.1:0", "--grpc-listen",
                     "127.0.0.1:0"], r"listening http=127.0.0.1:(\d+) grpc=127.0.0.1:(\d+)") as server:
            server.wait_for(" ready ")
            for load in ([], [f"--grpc=127.0.0.1:{server.grpc_port}"]):
                run = one_run(server.url, *load, *self.load)
                self.assertEqual((run["completed"], run["failed"]), (5, 0), run["failures"])

    def refusal(self, *options):
        with responder(f"--log={self.log}") as server:
            done = loadgen(f"--url={server.url}", "--warmup=1", "--json=-", *self.load, *options,
                           expect=2)
        self.assertEqual((done.stdout, self.log.read_text()), ("", ""))
        return done.stderr

    def test_a_line_that_a_form_cannot_send_is_refused_before_the_load(self):
        for form in ("text", "chat"):
            self.assertIn(f"{self.lines}: line 2: is token ids", self.refusal(f"--prompt-form={form}"))
        self.assertIn("line 1: is text", self.refusal("--prompt-form=token_ids"))
        self.lines.write_text(OWN_LINES + '{"turns": [{"prompt": "Hi"}, {"prompt": [1]}]}\n')
        self.assertIn("line 5: has turns of token ids and of text", self.refusal())

    def test_a_pipe_is_read_once(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = subprocess.Popen(["cp", self.lines, pipe])
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        with responder() as server:
            run = one_run(server.url, "--workload=jsonl", f"--file={pipe}", "--rate=100")
        self.assertEqual((run["completed"], run["failed"]), (5, 0))

    def test_a_signal_ends_the_wait_for_a_pipe(self):
        pipe, out = self.folder / "pipe", self.folder / "out.json"
        os.mkfifo(pipe)
        with responder(f"--log={self.log}") as server:
            process = subprocess.Popen(
                [LOADGEN, f"--url={server.url}", "--workload=jsonl", f"--file={pipe}", "--rate=100",
                 f"--json={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            with open(pipe, "w") as writer:
                print(*['{"prompt": "Once upon", "max_tokens": 2}'] * 2, sep="\n", file=writer,
                      flush=True)
                deadline = time.monotonic() + TIMEOUT_S
                while not self.log.read_text() and time.monotonic() < deadline:
                    time.sleep(0.02)
                time.sleep(0.3)  # for a third line
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, errors),
                         (128 + signal.SIGINT, "loadgen: interrupted\n"))
        [run] = json.loads(out.read_text())["runs"]
        self.assertEqual((run["completed"] + run["failed"], run["ended_early"]), (2, "interrupted"))

    def test_a_pipe_cannot_be_repeated(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with responder() as server:
            for repeat in ("on", "same"):
                done = loadgen(f"--url={server.url}", "--workload=jsonl", f"--file={pipe}",
                               f"--repeat={repeat}", expect=2)
                self.assertIn(f"--repeat: {pipe} can be read only once", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
