"""How tools/bench/compare judges what it measured: each goal is reached at its limit, and missed beyond."""

import argparse
import io
import types

import pytest

OURS, OFF = "refrain", "refrain, prefix_cache=off"
SHARED_8, SHARED_32 = "8 users, 2,048 shared + 64 own", "32 users, 2,048 shared + 64 own"
TRIE = "32 users in a trie of 1024 + 512 + 128"
UNSHARED = "4 users, 256 own, 32 out"
PLANNING = "trie: planning (plan, tree, attention plan), of the time of steps"


@pytest.fixture
def compare(load_tool):
    return load_tool("compare")


@pytest.fixture
def judged(compare):
    """Verdicts of the goals for which rows of {peer: values} have something."""
    def judge(rows, users=(8, 32)):
        results = compare.Results()
        for row, values in rows.items():
            for peer, of_rounds in values.items():
                for value in of_rounds:
                    results.add(row, "s", False, peer, value)
        return [one.verdict for one in compare.judgements(results, list(users))]

    return judge


@pytest.mark.parametrize(("row", "least"), [
    (SHARED_8, 1.5), (SHARED_8 + ", again", 2), (SHARED_32, 2), (SHARED_32 + ", again", 2),
    (TRIE, 2), (TRIE + ", again", 2)])
def test_users_that_share_are_held_to_the_best_peer(judged, row, least):
    for times, verdict in ((least + 0.01, "reached"), (least - 0.01, "missed")):
        assert judged({row: {OURS: [1, 1, 9], "vLLM": [times, times, 0.1],
                             "llama.cpp": [9, 9, 9]}}) == [verdict]
    assert judged({row: {OURS: [1]}}) == judged({row: {"vLLM": [1]}}) == []


@pytest.mark.parametrize(("row", "least"), [(SHARED_8, 2), (SHARED_32, 3), (TRIE, 3)])
def test_users_that_share_are_held_to_our_own_without_a_cache(judged, row, least):
    for times, verdict in ((least + 0.01, "reached"), (least - 0.01, "missed")):
        assert judged({row: {OURS: [1, 10], OFF: [times, 10 * times],
                             "refrain, mode=paged": [1, 1]}}) == [verdict]
    assert judged({row + ", again": {OURS: [1], OFF: [1]}}) == []


def test_rows_of_other_numbers_of_users_are_not_judged(judged):
    assert judged({SHARED_32: {OURS: [1], "vLLM": [1]}}, users=[8, 64]) == []


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (0.971, 0.981, "reached"), (0.969, 0.981, "missed"), (0.971, 0.979, "missed")])
def test_no_loss_takes_the_median_and_the_interval(judged, low, high, verdict):
    assert judged({UNSHARED: {OURS: [1] * 20, OFF: [low] * 11 + [high] * 9}}) == [verdict]


def test_nineteen_pairs_are_too_few_for_no_loss(judged):
    assert judged({UNSHARED: {OURS: [1] * 19, OFF: [1] * 20}}) == ["not judged: 19 pairs"]
    assert judged({UNSHARED: {OURS: [1] * 20, OFF: [0.5] * 20}}) == ["missed"]


def test_no_loss_is_told_with_its_interval(compare):
    results = compare.Results()
    for off in [0.99] * 11 + [1.01] * 9:
        results.add(UNSHARED, "s", False, OURS, 1)
        results.add(UNSHARED, "s", False, OFF, off)
    assert [one.measured for one in compare.judgements(results, [])] == ["0.990 [0.990, 1.010]"]


@pytest.mark.parametrize("row", [SHARED_8, SHARED_32 + ", again", TRIE, TRIE + ", again"])
def test_kv_memory_counts_its_worst_round(judged, row):
    assert judged({row + ": KV memory by unique tokens": {OURS: [1.0, 1.05]}}) == ["reached"]
    assert judged({row + ": KV memory by unique tokens": {OURS: [1.0, 1.0, 1.051]}}) == ["missed"]


def test_planning_has_less_than_a_hundredth_of_the_steps(judged):
    assert judged({PLANNING: {OURS: [0.1, 0.99, 5], OFF: [9, 9, 9]}}) == ["reached"]
    assert judged({PLANNING: {OURS: [1.0]}}) == ["missed"]


def test_unique_tokens_are_whole_chunks_of_each_lineage(compare):
    unique = compare.kv_memory.unique_tokens
    shared = list(range(8))
    # Two chunks in common; then a chunk and one begun each.
    assert unique([shared + [100], shared + [200]], 5, chunk=4) == 4 * (2 + 2 + 2)
    # What parts within a chunk has that chunk for itself; prompts that are alike share all but it.
    assert unique([[1, 2, 3], [1, 2, 4]], 2, chunk=4) == 4 * 2
    assert unique([shared, shared], 2, chunk=4) == 4 * (2 + 1 + 1)
    # The last new token is not in the cache.
    assert unique([shared, shared], 1, chunk=4) == 4 * 2
    # The same tokens behind another beginning are others.
    assert unique([[1] + shared, [2] + shared], 3, chunk=4) == 4 * (2 * 2 + 1 * 2)
    # As docs/results has it by hand: 2,048 shared, 64 of one's own, 64 new, in chunks of 64.
    users = [[0] * 2048 + [user] * 64 for user in range(1, 65)]
    assert unique(users, 64, chunk=64) == 160 * 64


PAGE = ('refrain_kv_capacity_tokens{m="x"} 4096\nrefrain_kv_chunks{state="used"} 3\n'
        'refrain_kv_chunks{state="cached"} 1\nrefrain_kv_chunks{state="free"} 60\n'
        "refrain_kv_physical_tokens 192\n")


@pytest.fixture
def server(compare, monkeypatch):
    """Its page of metrics is what the list has first; the last stays."""
    pages = [PAGE]

    def urlopen(request, timeout):
        if not isinstance(request, str):
            return io.BytesIO(b'{"count": 2, "tokens": [5, %d]}' % len(request.data))
        return io.BytesIO((pages.pop(0) if len(pages) > 1 else pages[0]).encode())

    monkeypatch.setattr(compare.kv_memory.urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(compare.kv_memory, "INTERVAL_S", 0.001)
    return types.SimpleNamespace(name="refrain", port=1, pid=1, model="m", pages=pages)


def test_the_most_that_was_seen_is_told(compare, server):
    assert compare.kv_memory.chunk_tokens(server) == 64
    low = PAGE.replace(" 192", " 64")
    server.pages[:] = [low, PAGE, low, low]
    with compare.kv_memory.Watch(server) as watch:
        while len(server.pages) > 1:
            pass
    assert watch.most_tokens == 192


def test_a_look_that_fails_is_an_error(compare, server):
    server.pages[:] = ["refrain_other 1\n"]
    with pytest.raises(compare.load.RequestError, match="refrain_kv_physical_tokens"):
        with compare.kv_memory.Watch(server) as watch:
            while watch._thread.is_alive():
                pass


@pytest.mark.parametrize("page", [PAGE.replace(" 192", " 0"), PAGE.replace(" 192", " many")])
def test_nothing_seen_is_an_error(compare, server, page):
    server.pages[:] = [page]
    with pytest.raises(compare.load.RequestError, match="KV memory"):
        with compare.kv_memory.Watch(server) as watch:
            watch._over.wait(0.01)


def test_waves_of_our_own_tell_their_kv_memory(compare, server, monkeypatch):
    monkeypatch.setattr(compare.machine, "wait_until_quiet", lambda: None)
    monkeypatch.setattr(compare.machine, "ForeignCpu",
                        lambda pids: types.SimpleNamespace(share=lambda: 0))
    watches = []

    class Watch(compare.kv_memory.Watch):
        def __init__(self, of):
            super().__init__(of)
            watches.append(self)

    def complete(*_):
        while watches and watches[-1].most_tokens == 0:
            pass
        return [compare.load.Reply(0, [1.0], "x", 2, 0, 64)]

    monkeypatch.setattr(compare.kv_memory, "Watch", Watch)
    monkeypatch.setattr(compare.load, "complete", complete)
    # Both prompts have 2 tokens, and 64 new ones: two chunks each, of which 3 were seen.
    for name, expected in ((OURS, [0.75, 0.75]), (OFF, []), ("vLLM", [])):
        results = compare.Results()
        compare.measure_waves(compare.Peer(name, server), argparse.Namespace(max_foreign=0.1),
                              "users", ["a", "b"], results)
        ratios = [values[name] for (row, *_), values in results.values.items() if "KV" in row]
        assert sum(ratios, []) == expected


@pytest.mark.parametrize(("time_s", "status", "told"), [(2.0, 0, "reached"), (1.9, 1, "missed")])
def test_a_missed_goal_is_told_and_an_exit_status(compare, monkeypatch, tmp_path, capsys, time_s,
                                                  status, told):
    def run(peers, arguments, log_folder, results):
        results.add(TRIE, "s", False, OURS, 1.0)
        results.add(TRIE, "s", False, "vLLM", time_s)

    server = types.SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(compare, "run", run)
    monkeypatch.setattr(compare, "make_peers", lambda *_: [compare.Peer(OURS, server)])
    monkeypatch.setattr(compare.interruption, "exit_on_signals", lambda: None)
    monkeypatch.setattr(compare.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(compare.sys, "argv", ["compare", "--model=m"])
    assert compare.main() == status
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"| {TRIE}: 2 times as fast as the best peer that was measured, vLLM | {time_s:.2f} | "
        f"{told} |")
