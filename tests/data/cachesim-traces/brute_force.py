"""Hit tokens of LRU and of the furthest-next-use oracle, by looking at everything every time.

    python3 brute_force.py > expected_hits.json
"""

import gzip
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def mooncake(name):
    with open(HERE / name) as file:
        for line in file:
            request = json.loads(line)
            yield request["input_length"], request["hash_ids"]


def agentic():
    found = []

    def walk(session, requests, start):
        for request in requests:
            if "requests" in request:
                walk(session, request["requests"], start + request["t"])
            else:
                found.append((start + request["t"], request["in"],
                              [(session, ident) for ident in request["hash_ids"]]))

    with gzip.open(HERE / "agentic_sample.jsonl.gz") as file:
        for session, line in enumerate(file):
            walk(session, json.loads(line)["requests"], 0)
    for _, tokens, blocks in sorted(found, key=lambda request: request[0]):
        yield tokens, blocks


def hits(requests, block_tokens, capacity, policy):
    cache, clock, total = {}, 0, 0  # block -> last use
    for at, (tokens, blocks) in enumerate(requests):
        matched = 0
        while matched < len(blocks) and blocks[matched] in cache:
            matched += 1
            clock += 1
            cache[blocks[matched - 1]] = clock
        total += min(matched * block_tokens, tokens)
        running = set(blocks[:matched])
        for block in blocks[matched:]:
            if len(cache) == capacity:
                parents = {PARENTS[kept] for kept in cache}
                leaves = [kept for kept in cache if kept not in parents and kept not in running]
                if not leaves:
                    break
                if policy == "lru":
                    victim = min(leaves, key=cache.get)
                else:
                    victim = max(leaves, key=lambda leaf: next(
                        (i for i in USES[leaf] if i > at), len(requests)))
                del cache[victim]
            clock += 1
            cache[block] = clock
            running.add(block)
    return total


PARENTS, USES = {}, {}


def number(requests):
    """Blocks as numbers; a block is its whole path."""
    numbers = {}
    PARENTS.clear()
    USES.clear()
    numbered = []
    for at, (tokens, path) in enumerate(requests):
        blocks, parent = [], None
        for ident in path:
            block = numbers.setdefault((parent, ident), len(numbers))
            PARENTS[block] = parent
            USES.setdefault(block, []).append(at)
            blocks.append(block)
            parent = block
        numbered.append((tokens, blocks))
    return numbered


def main():
    expected = []
    for name, trace, block_tokens, sizes in (
            ("random_paths.jsonl", list(mooncake("random_paths.jsonl")), 512, (10, 40, 150)),
            ("mooncake_head.jsonl", list(mooncake("mooncake_head.jsonl")), 512, (900, 2500)),
            ("agentic_sample.jsonl.gz", list(agentic()), 64, (300,))):
        trace = number(trace)
        for capacity in sizes:
            expected.append({"trace": name, "blocks": capacity, **{
                policy: hits(trace, block_tokens, capacity, policy)
                for policy in ("lru", "oracle")}})
    print(json.dumps(expected, indent=1))


main()
