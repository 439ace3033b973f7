"""Starts and stops what is measured: refraind and its peers, each at its best settings."""

import collections.abc
import contextlib
import dataclasses
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import free_ports
import interruption
import load

START_TIMEOUT_S = 600
STOP_TIMEOUT_S = 20


@contextlib.contextmanager
def log_folder(prefix: str) -> collections.abc.Iterator[pathlib.Path]:
    """A new folder for what servers print; it stays where an error ends the block, to be read."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    except Exception:
        print(f"logs are kept in {folder}", file=sys.stderr)
        raise
    except BaseException:  # an interruption
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


@dataclasses.dataclass
class Server:
    """A server program; `{port}` in its command stands for the port it gets."""

    name: str
    command: list[str]
    model: str  # the name that requests use
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen | None = None
    log: pathlib.Path | None = None  # of the start before, too

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spawn(self, log_folder: pathlib.Path) -> None:
        """Starts it; returns at once. It ends with this program, however that ends."""
        self.port = free_ports.free_port()
        self.log = log_folder / f"{self.name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [part.replace("{port}", str(self.port)) for part in self.command],
                env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True, preexec_fn=interruption.stop_with_parent)

    def is_up(self) -> bool:
        connection = http.client.HTTPConnection(load.HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _end(self) -> os.waitid_result | None:
        """How it ended, if it did. It is not reaped: until stop() nobody else's group has its number."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def check_alive(self) -> None:
        if self.process is None:
            raise load.RequestError(f"{self.name} was not started")
        if (end := self._end()) is not None:
            status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
            raise load.RequestError(f"{self.name} ended with status {status}; see {self.log}")

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_up():
            self.check_alive()
            if time.monotonic() > deadline:
                raise load.RequestError(f"{self.name} was not up after {START_TIMEOUT_S} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it, and what it started and left behind; at once where a signal ends the waiting."""
        if self.process is None:
            return
        deadline = time.monotonic() + STOP_TIMEOUT_S
        try:
            os.kill(self.pid, signal.SIGTERM)
            while self._end() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def stop_all(started: collections.abc.Iterable[Server]) -> None:
    """Signals are ignored meanwhile: one would leave those running that come behind."""
    with interruption.signals_ignored():
        for server in started:
            server.stop()


def refraind(program: str, model: str, threads: int, settings: list[str]) -> Server:
    command = [program, "--model", model, "--listen", f"{load.HOST}:{{port}}",
               "--grpc-listen", "", "--set", f"backend.threads={threads}", "--set", "model.served_name=m"]
    for setting in settings:
        command += ["--set", setting]
    return Server("refrain", command, "m")


def llama_server(program: str, model: str, threads: int, slots: int, slot_tokens: int,
                 library_path: str | None) -> Server:
    """One KV stream per slot: unified KV attends, masked, over all users' cells."""
    return Server(
        f"llama.cpp-np{slots}",
        [program, "-m", model, "--host", load.HOST, "--port", "{port}", "-t", str(threads),
         "-tb", str(threads), "-np", str(slots), "--no-kv-unified", "-c", str(slots * slot_tokens),
         "-fa", "on", "-b", "2048", "-ub", "512", "--cache-ram", "8192", "--cache-reuse", "256"],
        "m", {"LD_LIBRARY_PATH": library_path} if library_path else {})


def vllm_server(python: str, model: str, threads: int) -> Server:
    # An allocator and an OpenMP library that vLLM's documentation asks to preload.
    preload = [path for path in ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
                                 str(pathlib.Path(python).parent.parent / "lib" / "libiomp5.so"))
               if os.path.exists(path)]
    return Server(
        "vllm",
        [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model,
         "--served-model-name", "m", "--host", load.HOST, "--port", "{port}",
         "--dtype", "bfloat16", "--max-model-len", "8192", "--enable-prefix-caching",
         "--max-num-seqs", "64", "--enable-prompt-tokens-details", "--generation-config", "vllm"],
        "m",
        {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
         "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "4",
         "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}", "LD_PRELOAD": " ".join(preload),
         "PATH": f"{pathlib.Path(python).parent}:{os.environ['PATH']}"})
