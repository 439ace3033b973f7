"""What a rate sweep measures next, and what its points say. Arithmetic only: no server, no clock.

A point is one run of loadgen: {"server", "shared", "rate", "foreign_share", "commit", "run"}, the last
as loadgen reports it. Several points of one server, shared length and rate are its tries. All that is
decided follows from the list of points alone, so that an interrupted sweep goes on where it stopped.
"""

import copy
import dataclasses
import math
import statistics

# The papers' own ratios over the better peer (ChunkAttention, table 4), by shared prompt tokens.
GOALS = {1024: 1.6, 2048: 2.3}
# A server climbs no further when so many rates in a row were too much for it.
BROKEN_IN_A_ROW = 2
# So many disturbed tries are thrown away; further ones count, and are told.
MOST_THROWN_AWAY = 2


def normalized_ms(run: dict) -> float:
    """Mean normalized latency; infinite where a request failed, was cut short, or none was answered.

    A server that cuts answers has less to do than the others.
    """
    latency = run["latency_ms"]["normalized"]
    whole = run["failed"] == 0 and not run.get("short_answers")
    return latency["mean"] if whole and latency["count"] > 0 else math.inf


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    servers: list[str]
    shared: list[int]
    rates: list[float]  # ascending
    repeats: int        # tries of which the median counts
    slo_ms: float
    most_foreign: float  # a try with more of the CPU gone to other programs is disturbed


@dataclasses.dataclass(frozen=True)
class Task:
    """One run to be made."""

    server: str
    shared: int
    rate: float
    seed: int  # no two tries of a server have the same prompts: a second one would find them cached


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Ours over the better peer; `reached` is None where it cannot be said."""

    reached: bool | None
    text: str


class Sweep:
    """Points measured so far, under a plan."""

    def __init__(self, plan: Plan, points: list[dict]):
        self.plan, self.points = plan, points

    def tries(self, server: str, shared: int, rate: float) -> list[dict]:
        return [point for point in self.points
                if (point["server"], point["shared"], point["rate"]) == (server, shared, rate)]

    def kept(self, server: str, shared: int, rate: float) -> list[dict]:
        """The tries that count: without the first disturbed ones."""
        kept, thrown_away = [], 0
        for point in self.tries(server, shared, rate):
            if point["foreign_share"] > self.plan.most_foreign and thrown_away < MOST_THROWN_AWAY:
                thrown_away += 1
            else:
                kept.append(point)
        return kept

    def held(self, server: str, shared: int, rate: float) -> bool | None:
        """Whether the median try kept the SLO; None while further tries may change that.

        A rate at which answers were cut is none that was held, in how many tries ever.
        """
        kept = self.kept(server, shared, rate)
        if any(point["run"].get("short_answers") for point in kept):
            return False
        within = [normalized_ms(point["run"]) <= self.plan.slo_ms for point in kept]
        majority = self.plan.repeats // 2 + 1
        if within.count(True) >= majority:
            return True
        if within.count(False) >= majority:
            return False
        if len(within) < self.plan.repeats:
            return None
        return False  # as many held as broken

    def climbs_to(self, server: str, shared: int, index: int) -> bool:
        """Whether the rate with this index is to be measured, those below being decided."""
        row = 0
        for rate in self.plan.rates[:index]:
            row = row + 1 if self.held(server, shared, rate) is False else 0
            if row == BROKEN_IN_A_ROW:
                return False
        return True

    def next(self) -> Task | None:
        """Rate by rate from the lowest, each server in turn, another first every time."""
        for shared in self.plan.shared:
            for index, rate in enumerate(self.plan.rates):
                climbing = [name for name in self.plan.servers if self.climbs_to(name, shared, index)]
                for attempt in range(self.plan.repeats + MOST_THROWN_AWAY):
                    turn = (index + attempt) % max(1, len(climbing))
                    for server in climbing[turn:] + climbing[:turn]:
                        done = len(self.tries(server, shared, rate))
                        if done <= attempt and self.held(server, shared, rate) is None:
                            return Task(server, shared, rate,
                                        seed=shared * 10_000 + index * 100 + attempt)
        return None

    def rates_of(self, server: str, shared: int) -> list[float]:
        """Those with a verdict."""
        return [rate for rate in self.plan.rates if self.held(server, shared, rate) is not None]

    def highest_held(self, server: str, shared: int) -> float | None:
        return max((rate for rate in self.rates_of(server, shared)
                    if self.held(server, shared, rate)), default=None)

    def lowest_broken(self, server: str, shared: int) -> float | None:
        return min((rate for rate in self.rates_of(server, shared)
                    if not self.held(server, shared, rate)), default=None)

    def highest_unbroken(self, server: str, shared: int) -> float | None:
        """The highest rate held below which none was broken."""
        broken = self.lowest_broken(server, shared)
        return max((rate for rate in self.rates_of(server, shared)
                    if broken is None or rate < broken), default=None)

    def has_cut_answers(self, server: str, shared: int) -> bool:
        return any(point["run"].get("short_answers") for rate in self.rates_of(server, shared)
                   for point in self.kept(server, shared, rate))

    def median_run(self, server: str, shared: int, rate: float) -> dict:
        """loadgen's report of a run with the medians of the tries that count in it."""
        runs = [point["run"] for point in self.kept(server, shared, rate)]
        merged = copy.deepcopy(runs[0])
        for metric, summary in merged["latency_ms"].items():
            answered = [run["latency_ms"][metric] for run in runs
                        if run["latency_ms"][metric]["count"] > 0]
            for name in summary if answered else []:
                summary[name] = statistics.median(one[name] for one in answered)
        merged["completed"] = statistics.median(run["completed"] for run in runs)
        merged["failed"] = max(run["failed"] for run in runs)
        merged["short_answers"] = max(run.get("short_answers") or 0 for run in runs)
        return merged


def judge(sweep: Sweep, shared: int, ours: str, peers: list[str]) -> Verdict:
    """Ours against the better peer and the goal.

    Against ourselves where a curve is not monotonous: our rate is the highest below which none was
    broken, a peer's the highest held at all.
    """
    goal = GOALS.get(shared)
    peers = [name for name in peers if sweep.rates_of(name, shared)]
    if not peers or not sweep.rates_of(ours, shared):
        return Verdict(None, "No goal is judged: ours and a peer are needed.")
    # What answers only in part holds no rate, which would be to our advantage.
    if cut := [name for name in peers if sweep.has_cut_answers(name, shared)]:
        return Verdict(None, f"No goal is judged: answers of {', '.join(cut)} were cut.")
    our_rate = sweep.highest_unbroken(ours, shared) or 0.0
    best = max(peers, key=lambda name: sweep.highest_held(name, shared) or 0.0)
    rate = sweep.highest_held(best, shared)
    if rate is not None and sweep.lowest_broken(best, shared) is None:
        return Verdict(None, f"No goal is judged: no rate was too much for {best}, add higher ones.")
    if rate is None:
        # The peer may hold anything below the lowest rate: the ratio is more than this.
        rate = min(sweep.plan.rates)
        said = f"over {our_rate / rate:.2f} (no peer held the lowest rate)"
    else:
        said = f"{our_rate / rate:.2f} ({best})"
        above = min((one for one in sweep.rates_of(best, shared) if one > rate), default=None)
        if above is not None:
            said += f"; at least {our_rate / above:.2f}, whatever it holds between its rates"
    text = f"Ours over the better peer: {said}."
    if goal is None:
        return Verdict(None, text)
    reached = our_rate / rate >= goal
    return Verdict(reached, f"{text} Goal {goal:g}: {'reached' if reached else 'MISSED'}.")


def point_table(sweep: Sweep, shared: int) -> list[str]:
    """Every rate of every server as rows of Markdown."""
    lines = ["| server | req/s | tries | normalized, ms/token | TTFT mean / p99, ms | TPOT, ms | "
             "failed | cut | foreign CPU | held |", "|---|---|---|---|---|---|---|---|---|---|"]
    for server in sweep.plan.servers:
        for rate in sweep.rates_of(server, shared):
            run = sweep.median_run(server, shared, rate)
            latency = run["latency_ms"]
            kept = sweep.kept(server, shared, rate)
            thrown_away = len(sweep.tries(server, shared, rate)) - len(kept)
            answered = latency["normalized"]["count"] > 0
            # Answers of one token each have none.
            tpot = f"{latency['tpot']['mean']:.0f}" if latency["tpot"]["count"] > 0 else "-"
            lines.append(
                f"| {server} | {rate:g} | {len(kept)}"
                + (f" (+{thrown_away} disturbed)" if thrown_away else "")
                + (f" | {latency['normalized']['mean']:.0f} | {latency['ttft']['mean']:.0f} / "
                   f"{latency['ttft']['p99']:.0f} | {tpot}"
                   if answered else " | - | - | -")
                + f" | {run['failed']} | {run['short_answers']} | "
                + f"{100 * max(p['foreign_share'] for p in kept):.0f} % | "
                + ("yes" if sweep.held(server, shared, rate) else "no") + " |")
    return lines


def summary_table(sweep: Sweep, shared: int) -> list[str]:
    """The highest rate of every server as rows of Markdown."""
    lines = [f"| server | highest rate under {sweep.plan.slo_ms:g} ms/token, req/s | "
             "lowest rate over it, req/s |", "|---|---|---|"]
    for server in sweep.plan.servers:
        if not sweep.rates_of(server, shared):
            continue
        held, broken = sweep.highest_held(server, shared), sweep.lowest_broken(server, shared)
        lines.append(f"| {server} | "
                     + (f"{held:g}" if held is not None else f"under {min(sweep.plan.rates):g}")
                     + " | " + (f"{broken:g}" if broken is not None else "not found") + " |")
    return lines
