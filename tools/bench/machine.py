"""What the machine did during a measurement: foreign CPU use, memory of a process tree, its name."""

import os
import pathlib
import time

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def instruction_sets() -> list[str]:
    """Those that decide which kernels run."""
    interesting = ["avx2", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
                   "amx_bf16", "amx_int8"]
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            return [name for name in interesting if name in flags]
    return []


def _stat(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def process_tree(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except OSError:
                continue
    tree, queue = [], [pid]
    while queue:
        parent = queue.pop()
        tree.append(parent)
        queue += children.get(parent, [])
    return tree


def _cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        try:
            ticks += sum(int(field) for field in _stat(pid)[11:13])  # utime, stime
        except OSError:
            continue
    return ticks / TICKS_PER_S


def _busy_s() -> float:
    fields = [int(field) for field in
              pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, iowait = fields[3], fields[4]
    return (sum(fields) - idle - iowait) / TICKS_PER_S  # stolen time counts as busy


def wait_until_quiet(most_share: float = 0.04, window_s: float = 0.5,
                     patience_s: float = 30) -> bool:
    """Until the cores were idle, but for `most_share`, for a whole window; False if they never are.

    A server that was measured a moment ago may still be at work (refraind touches memory that it will
    need, others free some), which must not count against the one that is next.
    """
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        begin_s, busy_s = time.monotonic(), _busy_s()
        time.sleep(window_s)
        elapsed_s = time.monotonic() - begin_s
        if (_busy_s() - busy_s) / elapsed_s / (os.cpu_count() or 1) <= most_share:
            return True
    return False


class ForeignCpu:
    """Share of all cores that went to others than this process and the servers, since made.

    Programs that this process started and waited for are its own, such as a load generator.
    """

    def __init__(self, server_pids: list[int]):
        self._server_pids = server_pids
        self._started_s = time.monotonic()
        self._busy, self._own = _busy_s(), self._own_s()

    def _own_s(self) -> float:
        trees = [pid for server in self._server_pids for pid in process_tree(server)]
        return _cpu_s(trees) + sum(os.times()[:4])  # with the children that have ended

    def share(self) -> float:
        elapsed_s = time.monotonic() - self._started_s
        foreign_s = (_busy_s() - self._busy) - (self._own_s() - self._own)
        return max(0.0, foreign_s / elapsed_s / (os.cpu_count() or 1))


def memory_mib(pid: int) -> tuple[float, float]:
    """(resident, of it not backed by a file) of a process tree, in MiB.

    Pages of a mapped model file can be dropped by the kernel at any time; the second number is what
    the process needs for itself.
    """
    resident = anonymous = 0
    for member in process_tree(pid):
        try:
            for line in pathlib.Path(f"/proc/{member}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    resident += int(line.split()[1])
                elif line.startswith(("RssAnon:", "RssShmem:")):
                    anonymous += int(line.split()[1])
        except OSError:
            continue
    return resident / 1024, anonymous / 1024
