"""loadgen as a program, against the daemon (arguments: programs.py)."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from programs import (FAILING_PROMPTS, REFRAIND_FAKE, SMALL, Server, loadgen, one_run,
                      port_of_nobody)


class Daemon(unittest.TestCase):
    def setUp(self):
        self.server = Server([REFRAIND_FAKE, "--model", "fake", "--listen", "127.0.0.1:0",
                              "--grpc-listen", ""],
                             r"listening http=127.0.0.1:(\d+)")
        self.addCleanup(self.server.__exit__)
        self.server.wait_for(" ready ")

    def test_answers_as_many_tokens_as_were_asked_for(self):
        run = one_run(self.server.url, "--rate=100", "--requests=30", "--token-range=97:123",
                      "--prompt-form=token_ids", *SMALL)
        self.assertEqual((run["completed"], run["failed"]), (30, 0))
        self.assertEqual((run["input_tokens"], run["output_tokens"]), (30 * 25, 30 * 4))
        self.assertIsNotNone(run["cached_tokens"])

    def test_takes_requests_whose_members_were_overridden(self):
        run = one_run(self.server.url, "--rate=100", "--requests=3", "--token-range=97:123",
                      "--prompt-form=token_ids", *SMALL,
                      '--extra-body={"max_tokens": 5, "temperature": 0.5, "ignore_eos": true}')
        self.assertEqual((run["completed"], run["failed"]), (3, 0))
        self.assertEqual(run["output_tokens"], 3 * 5)

    def test_its_refusals_and_broken_answers_are_counted(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
            for prompt in FAILING_PROMPTS:
                lines.write(json.dumps({"prompt": prompt, "max_tokens": 5}) + "\n")
            lines.flush()
            run = one_run(self.server.url, "--workload=jsonl", f"--file={lines.name}",
                          "--prompt-form=text", "--rate=100", "--timeout-s=5")
        self.assertEqual(run["completed"], 1)
        self.assertEqual({kind: failure["count"] for kind, failure in run["failures"].items()},
                         {"http_429": 1, "error_event": 1, "timeout": 1})


class Grpc(unittest.TestCase):
    def setUp(self):
        self.server = Server([REFRAIND_FAKE, "--model", "fake", "--listen", "127.0.0.1:0",
                              "--grpc-listen", "127.0.0.1:0"],
                             r"listening http=127.0.0.1:(\d+) grpc=127.0.0.1:(\d+)")
        self.addCleanup(self.server.__exit__)
        self.server.wait_for(" ready ")
        self.load = f"--grpc=127.0.0.1:{self.server.grpc_port}"

    def metrics(self):
        with urllib.request.urlopen(f"{self.server.url}/metrics") as answer:
            return answer.read().decode()

    def test_answers_as_many_tokens_as_were_asked_for(self):
        run = one_run(self.server.url, self.load, "--rate=100", "--requests=30",
                      "--token-range=97:123", *SMALL)
        self.assertEqual((run["completed"], run["failed"]), (30, 0))
        self.assertEqual((run["input_tokens"], run["output_tokens"]), (30 * 25, 30 * 4))
        self.assertIsNotNone(run["cached_tokens"])
        # Tokens that come in one message have no time between them.
        self.assertIn(run["latency_ms"]["itl"]["count"], range(1, 30 * 3 + 1))
        # The metrics are HTTP's, and tell that the load was not.
        self.assertIn("refrain_kv_used_bytes", run["server_peaks"])
        # A call may be counted after its client has the answer.
        counted = r'grpc_server_handled_total\{[^}]*"Generate"[^}]*"OK"[^}]*\} 30\b'
        deadline = time.monotonic() + 10
        while not re.search(counted, page := self.metrics()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertRegex(page, counted)
        self.assertNotIn('handler="/v1/completions"', page)

    def test_needs_no_http(self):
        run = json.loads(loadgen(self.load, "--json=-", "--rate=100", "--requests=5",
                                 "--token-range=97:123", *SMALL).stdout)["runs"][0]
        self.assertEqual((run["completed"], run["output_tokens"]), (5, 5 * 4))

    def test_its_refusals_and_broken_answers_are_counted(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
            for prompt in FAILING_PROMPTS:
                lines.write(json.dumps({"prompt": prompt, "max_tokens": 5}) + "\n")
            lines.flush()
            run = one_run(self.server.url, self.load, "--workload=jsonl", f"--file={lines.name}",
                          "--prompt-form=text", "--rate=100", "--timeout-s=5")
        self.assertEqual(run["completed"], 1)
        self.assertEqual({kind: failure["count"] for kind, failure in run["failures"].items()},
                         {"grpc_RESOURCE_EXHAUSTED": 1, "grpc_INTERNAL": 1, "timeout": 1})

    def test_nobody_there_is_a_failure_of_each_request(self):
        with port_of_nobody() as port:
            run = one_run(self.server.url, f"--grpc=127.0.0.1:{port}", "--requests=3",
                          "--rate=100", *SMALL, expect=1)
        self.assertEqual((run["completed"], run["failed"]), (0, 3))


class Tls(unittest.TestCase):
    """A daemon whose certificate signs itself."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cert, key = (pathlib.Path(cls.folder.name) / name for name in ("cert.pem", "key.pem"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-keyout", key, "-out", cls.cert, "-days", "2", "-subj", "/CN=test",
             "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        server = Server([REFRAIND_FAKE, "--model", "fake", "--listen", "127.0.0.1:0",
                         "--grpc-listen", "127.0.0.1:0", "--set", f"tls.cert_file={cls.cert}",
                         "--set", f"tls.key_file={key}"],
                        r"listening http=127.0.0.1:(\d+) grpc=127.0.0.1:(\d+)")
        cls.addClassCleanup(server.__exit__)
        server.wait_for(" ready ")
        cls.url = f"https://127.0.0.1:{server.port}"
        cls.grpc = f"--grpc=https://127.0.0.1:{server.grpc_port}"

    def test_answers_over_tls(self):
        run = one_run(self.url, f"--tls-ca={self.cert}", "--rate=100", "--requests=30",
                      "--token-range=97:123", "--prompt-form=token_ids", *SMALL)
        self.assertEqual((run["completed"], run["failed"]), (30, 0))
        self.assertEqual(run["output_tokens"], 30 * 4)
        self.assertTrue(run["server_peaks"])

    def test_strangers_are_not_trusted_unless_all_are(self):
        done = loadgen(f"--url={self.url}", "--requests=1", *SMALL, expect=2)
        self.assertIn("no TLS", done.stderr)
        named_otherwise = self.url.replace("127.0.0.1", "localhost")
        done = loadgen(f"--url={named_otherwise}", f"--tls-ca={self.cert}", "--requests=1", *SMALL,
                       expect=2)
        self.assertIn("no TLS", done.stderr)
        run = one_run(self.url, "--tls-verify=off", "--requests=2", "--rate=100",
                      "--token-range=97:123", *SMALL)
        self.assertEqual(run["completed"], 2)

    def test_a_failed_handshake_is_a_failure_of_its_kind(self):
        run = one_run(self.url, "--model=fake-model", "--prompt-form=text", "--metrics=off",
                      "--requests=2", "--rate=100", *SMALL, expect=1)
        self.assertEqual(run["failures"]["tls_failed"]["count"], 2)

    def grpc_run(self, *options, expect=0):
        done = loadgen(*options, "--json=-", "--requests=2", "--rate=100", "--token-range=97:123",
                       *SMALL, expect=expect)
        return json.loads(done.stdout)["runs"][0]

    def test_grpc_speaks_tls_to_whom_it_trusts(self):
        self.assertEqual(self.grpc_run(self.grpc, f"--tls-ca={self.cert}")["output_tokens"], 2 * 4)
        self.assertEqual(self.grpc_run(self.grpc, "--tls-verify=off")["output_tokens"], 2 * 4)
        run = self.grpc_run(self.grpc, expect=1)
        self.assertEqual(run["failures"]["tls_failed"]["count"], 2, run)
        done = loadgen(self.grpc, "--tls-ca=/dev/null", "--requests=1", *SMALL, expect=2)
        self.assertIn("--tls-ca is /dev/null, which holds no certificates", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
