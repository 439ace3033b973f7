"""Judges what compare measured: each goal is reached, missed, or not judged and why.

Times are told as the other's over ours. A goal for which nothing was measured is left out.
"""

import collections.abc
import dataclasses
import random
import statistics

REACHED, MISSED = "reached", "missed"
# Users that share a prompt, all at once: of the best peer's time and of our own without a cache.
# A few users have less to share.
FEW_USERS = 8
FEW_TIMES_PEER, FEW_TIMES_OFF = 1.5, 2.0
TIMES_PEER, TIMES_OFF = 2.0, 3.0
TIMES_PEER_AGAIN = 2.0  # where everything is cached
KV_MEMORY_MOST = 1.05   # of the unique tokens, each lineage rounded up to its chunk
PLANNING_PERCENT = 1.0  # of the time of steps; less than it
# No loss: the median of so many interleaved pairs, and its 95 % interval reaches the other.
LEAST_PAIRS = 20
NO_LOSS_MEDIAN, NO_LOSS_REACHES = 0.97, 0.98

Values = dict[str, list[float]]  # peer -> one value per round


@dataclasses.dataclass(frozen=True)
class Judgement:
    goal: str
    measured: str
    verdict: str

    def __str__(self) -> str:
        return f"| {self.goal} | {self.measured} | {self.verdict} |"


def _of(holds: bool) -> str:
    return REACHED if holds else MISSED


def paired(ours: list[float], others: list[float]) -> list[float]:
    """other / ours, round by round."""
    return [other / own for own, other in zip(ours, others)]


def interval(ratios: list[float]) -> tuple[float, float]:
    """Where 95 % of the medians of redrawn ratios lie."""
    draws = random.Random(1)
    medians = sorted(statistics.median(draws.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def beside_peers(row: str, values: Values, ours: str, peers: collections.abc.Iterable[str],
                 least: float) -> list[Judgement]:
    medians = {name: statistics.median(values[name]) for name in peers if values.get(name)}
    if not medians or not values.get(ours):
        return []
    best = min(medians, key=medians.__getitem__)
    times = medians[best] / statistics.median(values[ours])
    return [Judgement(f"{row}: {least:g} times as fast as the best peer that was measured, {best}",
                      f"{times:.2f}", _of(times >= least))]


def beside_off(row: str, values: Values, ours: str, off: str, least: float) -> list[Judgement]:
    ratios = paired(values.get(ours, []), values.get(off, []))
    if not ratios:
        return []
    times = statistics.median(ratios)
    return [Judgement(f"{row}: {least:g} times as fast as {off}", f"{times:.2f}",
                      _of(times >= least))]


def no_loss(row: str, values: Values, ours: str, off: str) -> list[Judgement]:
    ratios = paired(values.get(ours, []), values.get(off, []))
    if not ratios:
        return []
    median, (low, high) = statistics.median(ratios), interval(ratios)
    verdict = _of(median >= NO_LOSS_MEDIAN and high >= NO_LOSS_REACHES)
    if len(ratios) < LEAST_PAIRS:
        verdict = f"not judged: {len(ratios)} pairs"
    return [Judgement(
        f"{row}: no loss against {off} (median at least {NO_LOSS_MEDIAN}, interval reaches "
        f"{NO_LOSS_REACHES}, {LEAST_PAIRS} pairs)", f"{median:.3f} [{low:.3f}, {high:.3f}]", verdict)]


def kv_memory(row: str, values: list[float]) -> list[Judgement]:
    if not values:
        return []
    return [Judgement(f"{row}: KV memory at most {KV_MEMORY_MOST} of the unique tokens",
                      f"{max(values):.3f}", _of(max(values) <= KV_MEMORY_MOST))]


def planning(row: str, values: list[float]) -> list[Judgement]:
    if not values:
        return []
    share = statistics.median(values)
    return [Judgement(f"{row}: less than {PLANNING_PERCENT:g} %", f"{share:.2f} %",
                      _of(share < PLANNING_PERCENT))]
