"""Keeps Bazel's disk cache within a size: Bazel itself never deletes from it."""

import fcntl
import os
import pathlib
import time

LIMIT_BYTES = 5 << 30
KEEP_BYTES = 4 << 30
# What another build may be about to read stays.
MIN_AGE_S = 3600


def prune(folder: pathlib.Path, limit_bytes: int = LIMIT_BYTES, keep_bytes: int = KEEP_BYTES,
          now_s: float | None = None) -> int:
    """When `folder` is over the limit, deletes what was not used longest; returns bytes freed."""
    if not folder.is_dir():
        return 0
    now_s = time.time() if now_s is None else now_s
    with open(folder / ".prune.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        files = []
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= limit_bytes:
            return 0
        freed = 0
        for used_s, size, path in sorted(files):
            if total - freed <= keep_bytes or used_s > now_s - MIN_AGE_S:
                break
            try:
                os.unlink(path)
                freed += size
            except FileNotFoundError:
                pass
        return freed
