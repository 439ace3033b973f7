"""The disk cache stays within its size and keeps what was used last."""

import os

import disk_cache

NOW_S = 1_000_000_000.0


def write(folder, name, size, age_s):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def test_deletes_the_longest_unused_first_down_to_the_size_to_keep(tmp_path):
    oldest = write(tmp_path, "cas/a", 400, 90_000)
    older = write(tmp_path, "ac/b", 400, 80_000)
    recent = write(tmp_path, "cas/c", 400, 70_000)
    assert disk_cache.prune(tmp_path, limit_bytes=1000, keep_bytes=800, now_s=NOW_S) == 400
    assert not oldest.exists() and older.exists() and recent.exists()


def test_deletes_nothing_within_the_limit(tmp_path):
    path = write(tmp_path, "cas/a", 400, 90_000)
    assert disk_cache.prune(tmp_path, limit_bytes=1000, keep_bytes=100, now_s=NOW_S) == 0
    assert path.exists()


def test_keeps_what_a_running_build_may_need(tmp_path):
    path = write(tmp_path, "cas/a", 2000, 60)
    assert disk_cache.prune(tmp_path, limit_bytes=1000, keep_bytes=100, now_s=NOW_S) == 0
    assert path.exists()


def test_a_cache_that_is_not_there_is_fine(tmp_path):
    assert disk_cache.prune(tmp_path / "none") == 0
