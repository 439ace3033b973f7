"""/metrics, the dashboard and the alerts, with the real Prometheus.

`prometheus` and `promtool` come from PATH or from where tools/setup unpacks them; what needs them
fails where neither has them.
"""

import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import grpc
import httpx
import pytest

import free_ports
from grpc_services import Services, address
from metrics_page import samples, total
from waiting import wait_until

ROOT = pathlib.Path(__file__).parents[3]
DASHBOARD = ROOT / "configs" / "grafana" / "refrain.json"
PROMETHEUS_CONFIG = ROOT / "configs" / "prometheus" / "prometheus.yml"
ALERTS = ROOT / "configs" / "prometheus" / "alerts.yml"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
UNPACKED = CACHE / "refrain" / "debian" / "usr" / "bin"

# What promtool has against names that vLLM chose.
NAME_COMPLAINT = re.compile(r"""vllm:\S+ (metric names should not contain ':'|"""
                            """non-counter metrics should not have "_total" suffix)""")
LINT_FOUND = 3  # promtool's exit status when only its conventions are broken


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], str(UNPACKED)]))
    assert found is not None, f"{name} is not there: tools/setup fetches it"
    return found


PROBE_LIMIT_MS = 20


def probe_milliseconds(get, get_idle, pause_s: float = 0) -> float:
    """How much longer the 19th of 20 times is that get() takes than that of get_idle(), which asks a
    daemon that does nothing else, in the first round that keeps the limit or the best of all. What
    else the machine does delays both, or some rounds, a server that makes probes wait all of them;
    the rests between them outlast a busy spell."""
    best = float("inf")
    for round_number in range(20):
        if best < PROBE_LIMIT_MS:
            break
        time.sleep(0.3 if round_number > 0 else 0)
        times = {get: [], get_idle: []}
        for _ in range(20):
            for ask, taken in times.items():
                time.sleep(pause_s)
                begin = time.perf_counter()
                ask()
                taken.append(1000 * (time.perf_counter() - begin))
        best = min(best, sorted(times[get])[18] - sorted(times[get_idle])[18])
    return best


def metrics(url: str) -> dict[str, float]:
    answer = httpx.get(f"{url}/metrics", timeout=60)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(answer.text)


def wait_for_totals(url: str, expected: dict[tuple[str, ...], float]) -> None:
    """Until each total, named by its metric and labels, is what is expected: an answer is counted
    when all of it has been sent, so possibly after its client has read it."""
    deadline = time.monotonic() + 20
    while True:
        page = metrics(url)
        found = {series: total(page, *series) for series in expected}
        if found == expected:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def complete(url: str, **fields) -> dict:
    body = {"prompt": "The capital of France is", "max_tokens": 5, "ignore_eos": True, **fields}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]


@pytest.fixture(scope="module")
def used_daemon(daemon_arguments, tmp_path_factory):
    """A daemon that has answered three requests and a gRPC call, and the requests' usage."""
    from conftest import Daemon
    running = Daemon(*daemon_arguments, tmp_path_factory.mktemp("metrics"),
                     "--grpc-listen", "127.0.0.1:0").wait_until_ready()
    with grpc.insecure_channel(address(running)) as channel:
        Services(channel)("Inference/Models")
    usages = [complete(running.url), complete(running.url, max_tokens=7),
              complete(running.url, n=2)]
    wait_for_totals(running.url, {
        ("vllm:generation_tokens_total",): 5 + 7 + 2 * 5, ("vllm:request_success_total",): 4,
        ("refrain_requests_total", 'status="OK"'): 3, ("refrain_grpc_calls_total",): 1,
        ("http_requests_total", 'handler="/v1/completions"', 'status="2xx"'): 3})
    yield running, usages
    assert running.stop() == 0


def test_answers_while_the_model_loads(start_daemon):
    for _ in range(5):  # a second is enough to load it: others may have the processors for so long
        daemon = start_daemon()
        page = metrics(daemon.url)
        if page["refrain_model_loaded"] == 0:
            break
        daemon.stop()
    assert page["refrain_model_loaded"] == 0
    assert total(page, "refrain_build_info") == 1
    daemon.wait_until_ready()
    assert metrics(daemon.url)["refrain_model_loaded"] == 1


def test_counts_what_was_asked_for(used_daemon):
    daemon, usages = used_daemon
    page = metrics(daemon.url)
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached > 0
    assert total(page, "vllm:prompt_tokens_total") == prompt
    assert total(page, "vllm:prompt_tokens_cached_total") == cached
    assert total(page, "vllm:prefix_cache_queries_total") == prompt
    assert total(page, "vllm:prefix_cache_hits_total") == cached
    assert total(page, "vllm:generation_tokens_total") == 5 + 7 + 2 * 5
    assert total(page, "vllm:request_success_total", 'finished_reason="length"') == 4
    assert total(page, "vllm:request_success_total") == 4
    assert total(page, "vllm:time_to_first_token_seconds_count") == 4  # choices
    assert total(page, "vllm:inter_token_latency_seconds_count") == 4 + 6 + 2 * 4
    assert total(page, "vllm:e2e_request_latency_seconds_count") == 4
    assert total(page, "vllm:request_params_n_count") == 3
    assert total(page, "refrain_requests_total", 'status="OK"') == 3
    assert total(page, "http_requests_total", 'handler="/v1/completions"', 'status="2xx"') == 3
    waited = total(page, "vllm:e2e_request_latency_seconds_sum")
    parts = sum(total(page, f"{name}_sum") for name in (
        "refrain_encode_seconds", "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds"))
    # What is missing is the time from the last token to the end of its turn.
    assert 0.5 * waited < parts <= waited
    chunks = total(page, "refrain_kv_chunks")
    assert chunks * 64 == page["refrain_kv_capacity_tokens"]


def test_cancelled_requests_are_aborts(start_daemon):
    daemon = start_daemon().wait_until_ready()
    with httpx.stream("POST", f"{daemon.url}/v1/completions", timeout=60, json={
            "prompt": "Hello", "max_tokens": 2000, "ignore_eos": True, "stream": True}) as answer:
        next(answer.iter_lines())
    wait_for_totals(daemon.url, {
        ("vllm:request_success_total", 'finished_reason="abort"'): 1,
        ("vllm:request_success_total",): 1, ("refrain_requests_total", 'status="CANCELLED"'): 1})


@pytest.mark.no_tsan
def test_answers_at_once_with_100_requests_queued(start_daemon, fake_daemon):
    daemon = start_daemon("--set", "engine.max_sequences=4").wait_until_ready()
    # So long that 100 wait also when the probes take all their rounds.
    body = {"prompt": [f"Story number {i}:" for i in range(124)], "max_tokens": 1900,
            "ignore_eos": True}
    done = threading.Event()

    def ask():
        try:
            httpx.post(f"{daemon.url}/v1/completions", timeout=600, json=body)
        except httpx.HTTPError:
            pass  # the daemon is killed with the test
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    with (httpx.Client(base_url=daemon.url, timeout=60) as client,
          httpx.Client(base_url=fake_daemon.url, timeout=60) as idle):
        def waiting() -> float:
            return total(samples(client.get("/metrics").text), "vllm:num_requests_waiting")

        wait_until(lambda: waiting() >= 100)
        for path in ("/metrics", "/health"):
            assert probe_milliseconds(
                lambda: client.get(path).raise_for_status(),
                lambda: idle.get(path).raise_for_status()) < PROBE_LIMIT_MS, path
        assert waiting() >= 100
    assert not done.is_set()


def tokenize_for_ever(url: str, answers) -> None:
    """Four texts of 16 MiB at once, again and again; puts the first answer's count, and what went
    wrong, with which it ends."""
    os.nice(10)  # the work of sending them is not what the probes are to wait for
    body = json.dumps({"prompt": "once upon a time " * (16 * 2**20 // 17)}).encode()

    def tokenize(first: bool):
        try:
            with httpx.Client(base_url=url, timeout=120) as client:
                while True:
                    answer = client.post("/tokenize", content=body).raise_for_status()
                    if first:
                        answers.put(answer.json()["count"])
                    first = False
        except Exception as error:
            answers.put(repr(error))
            answers.close()
            answers.join_thread()
            os._exit(1)

    threads = [threading.Thread(target=tokenize, args=(i == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.optimised
def test_answers_at_once_beside_large_tokenisations(start_daemon, fake_daemon):
    daemon = start_daemon("--set=limits.body_bytes=32MiB").wait_until_ready()
    # In a process of their own: threads of this one would make the probes wait for Python's lock.
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    load = context.Process(target=tokenize_for_ever, args=(daemon.url, answers), daemon=True)
    load.start()
    try:
        first = answers.get(timeout=300)
        assert isinstance(first, int) and first > 2**20, first
        with (httpx.Client(base_url=daemon.url, timeout=60) as client,
              httpx.Client(base_url=fake_daemon.url, timeout=60) as idle):
            assert probe_milliseconds(
                lambda: client.get("/metrics").raise_for_status(),
                lambda: idle.get("/metrics").raise_for_status(), pause_s=0.02) < PROBE_LIMIT_MS
        assert load.is_alive(), answers.get(timeout=10)
    finally:
        load.kill()
        load.join()


def test_promtool_finds_nothing_but_the_names_that_vllm_chose(used_daemon):
    promtool = program("promtool")
    page = httpx.get(f"{used_daemon[0].url}/metrics").text
    # A colon and a histogram named _total are against promtool's conventions; the names are not
    # ours to change.
    checked = subprocess.run([promtool, "check", "metrics"], input=page, text=True, timeout=60,
                             capture_output=True)
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert checked.returncode in (0, LINT_FOUND), complaints
    assert [text for text in complaints if not NAME_COMPLAINT.fullmatch(text)] == []
    ours = "\n".join(line for line in page.splitlines() if "vllm:" not in line) + "\n"
    assert "refrain_kv_chunks" in ours and "process_cpu_seconds_total" in ours
    checked = subprocess.run([promtool, "check", "metrics"], input=ours, text=True, timeout=60,
                             capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_configuration_and_alerts():
    promtool = program("promtool")
    for command in (["config", PROMETHEUS_CONFIG], ["rules", ALERTS]):
        checked = subprocess.run([promtool, "check", *command], capture_output=True, text=True,
                                 timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def metric_names(expression: str) -> set[str]:
    """The metrics that a PromQL expression reads."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", " ", expression)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", " ", bare)
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b", bare)
    return {name for name in names if not re.fullmatch(r"and|or|unless|bool|e|inf", name)
            and not re.search(rf"\b{re.escape(name)}\s*\(", bare)}


def dashboard_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def alert_expressions() -> list[str]:
    # Without a YAML parser: `expr: X`, or `expr: >` and lines that are indented deeper.
    text = ALERTS.read_text()
    found = re.findall(r"^( +)expr: (?:>\n((?:\1  .*\n)+)|(.*)\n)", text, re.MULTILINE)
    return [" ".join((folded or plain).split()) for _, folded, plain in found]


def test_alerts_look_at_nothing_of_other_programs():
    for expression in alert_expressions():
        for name in metric_names(expression):
            if not name.startswith("refrain_"):
                assert not re.findall(rf'{name}\b(?!{{job="refrain"[,}}])', expression), expression


def test_documents_what_is_exposed_and_nothing_else(used_daemon):
    page = httpx.get(f"{used_daemon[0].url}/metrics").text
    types = dict(line.split(" ")[2:4] for line in page.splitlines() if line.startswith("# TYPE "))
    exposed = {name: kind for name, kind in types.items() if not name.endswith("_created")}
    rows = re.findall(r"^\| `([a-z0-9:_]+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(),
                      re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a metric stands in two rows"
    assert dict(rows) == exposed


def test_metric_names_of_an_expression():
    assert metric_names('sum by (le) (rate(a:b_bucket{x="y"}[5m])) / c_total > 0 and d') == {
        "a:b_bucket", "c_total", "d"}


@pytest.mark.parametrize("source", ["dashboard", "alerts"])
def test_everything_queried_is_exposed(used_daemon, source):
    expressions = dashboard_expressions() if source == "dashboard" else alert_expressions()
    assert len(expressions) >= (50 if source == "dashboard" else 8)
    exposed = {series.split("{")[0] for series in metrics(used_daemon[0].url)} | {"up"}
    for expression in expressions:
        names = metric_names(expression)
        assert names, expression
        assert names <= exposed, f"{expression}: {names - exposed} is not exposed"


# Per alert: series of which it fires within a quarter of an hour, and their like of which it does
# not. In promtool's notation, a value a minute; all are of the job refrain.
ALERT_SERIES = {
    "RefrainDown": ({"up": "0x20"}, {"up": "1x20"}),
    "RefrainEngineDead": ({"refrain_model_loaded": "1x20", "refrain_engine_healthy": "0x20"},
                          {"refrain_model_loaded": "0x5 1x15", "refrain_engine_healthy": "0x5 1x15"}),
    # One step, and then no other. Not one that goes on with a request, nor an idle one to which one
    # has just come.
    "RefrainEngineStalled": (
        {"refrain_arrived_requests_total": "3x20", 'refrain_requests_total{status="OK"}': "2x20",
         'refrain_requests_total{status="CANCELLED"}': "0x20", "refrain_steps_total": "7 8x20"},
        {'refrain_arrived_requests_total{instance="a"}': "3x20",
         'refrain_requests_total{instance="a",status="OK"}': "2x20",
         'refrain_steps_total{instance="a"}': "0+9x20",
         'refrain_arrived_requests_total{instance="b"}': "2x13 3x7",
         'refrain_requests_total{instance="b",status="OK"}': "1x20",
         'refrain_requests_total{instance="b",status="CANCELLED"}': "1x20",
         'refrain_steps_total{instance="b"}': "8x20"}),
    # The unit ends a start after ten minutes, before which somebody should know.
    "RefrainLoadingForLong": ({"refrain_model_loaded": "1x5 0x9"}, {"refrain_model_loaded": "0x5 1x15"}),
    "RefrainServerErrors": (
        {'http_requests_total{status="5xx"}': "0+2x20", 'http_requests_total{status="2xx"}': "0+90x20"},
        {'http_requests_total{status="4xx"}': "0+2x20", 'http_requests_total{status="2xx"}': "0+90x20"}),
    "RefrainRefusesRequests": ({'refrain_http_responses_total{code="429"}': "0+1x20"},
                               {'refrain_http_responses_total{code="200"}': "0+1x20"}),
    "RefrainCallErrors": (
        {'grpc_server_handled_total{grpc_code="Internal"}': "0+2x20",
         'grpc_server_handled_total{grpc_code="OK"}': "0+90x20"},
        {'grpc_server_handled_total{grpc_code="NotFound"}': "0+2x20",
         'grpc_server_handled_total{grpc_code="OK"}': "0+90x20"}),
    "RefrainRefusesCalls": ({'grpc_server_handled_total{grpc_code="ResourceExhausted"}': "0+1x20"},
                            {'grpc_server_handled_total{grpc_code="OK"}': "0+1x20"}),
    "RefrainRefusesConnections": ({"refrain_connections_refused_total": "7x20",
                                   "refrain_connections_evicted_total": "0+1x20"},
                                  {"refrain_connections_refused_total": "7x20"}),
    "RefrainCannotAccept": ({'refrain_accept_errors_total{front_end="grpc"}': "0+9x20"},
                            {'refrain_accept_errors_total{front_end="grpc"}': "9x20"}),
    "RefrainCutsUnreadAnswers": ({"refrain_unread_answers_cut_total": "0+1x20"},
                                 {"refrain_unread_answers_cut_total": "3x20"}),
    "RefrainQueueGrows": ({"vllm:num_requests_waiting": "1+2x20"},
                          {"vllm:num_requests_waiting": "5x20"}),
    "RefrainSlowFirstToken": (
        {'vllm:time_to_first_token_seconds_bucket{le="10.0"}': "0+54x20",
         'vllm:time_to_first_token_seconds_bucket{le="20.0"}': "0+60x20",
         'vllm:time_to_first_token_seconds_bucket{le="+Inf"}': "0+60x20"},
        {'vllm:time_to_first_token_seconds_bucket{le="10.0"}': "0+58x20",
         'vllm:time_to_first_token_seconds_bucket{le="20.0"}': "0+60x20",
         'vllm:time_to_first_token_seconds_bucket{le="+Inf"}': "0+60x20"}),
    # Each preemption frees what the request had: the share dips just where the cache is too small.
    "RefrainCacheTooSmall": ({"vllm:num_preemptions_total": "0+60x20",
                              "vllm:kv_cache_usage_perc": "1 0.8 " * 10},
                             {"vllm:num_preemptions_total": "0+60x20",
                              "vllm:kv_cache_usage_perc": "0.9x20"}),
    "RefrainCorruptedRequests": ({"vllm:corrupted_requests_total": "0x10 1x10"},
                                 {"vllm:corrupted_requests_total": "3x20"}),
}


def of_job(job: str, series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="{job}"' + (f",{labels}" if labels else "}")


def test_alerts_fire_when_they_should_and_not_else(tmp_path):
    rules = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert set(rules) == set(ALERT_SERIES)
    cases = []
    for alert, (firing, quiet) in ALERT_SERIES.items():
        tried = [("refrain", firing, [{"labels": "{}", "value": 1}]), ("refrain", quiet, [])]
        # Other programs have metrics of the same names.
        if not all(name.startswith("refrain_") for name in firing):
            tried.append(("other", firing, []))
        for job, series, samples in tried:
            cases.append({
                "name": f"{alert} of {job}", "interval": "1m",
                "input_series": [{"series": of_job(job, name), "values": values}
                                 for name, values in series.items()],
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": "15m", "exp_samples": samples}]})
    cases_file = tmp_path / "alerts_test.yml"  # JSON is YAML
    cases_file.write_text(json.dumps(
        {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run([program("promtool"), "test", "rules", str(cases_file)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# The metrics of a process, and some of HTTP's, are not ours alone.
def test_the_dashboard_shows_our_servers_only_and_tells_them_apart():
    dashboard = json.loads(DASHBOARD.read_text())
    [instance] = [variable for variable in dashboard["templating"]["list"]
                  if variable["name"] == "instance"]
    assert instance["definition"] == "label_values(refrain_build_info, instance)"
    assert instance["includeAll"] and "allValue" not in instance, "All is more than these"
    for target in (target for panel in dashboard["panels"] for target in panel.get("targets", [])):
        assert target["expr"].count('instance=~"$instance"') == target["expr"].count("{"), target
        if not re.search(r"\bsum\b", target["expr"]):
            assert "{{instance}}" in target["legendFormat"], target


def test_dashboard_panels_do_not_overlap():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


class Prometheus:
    """A real Prometheus that scrapes `target` five times a second."""

    def __init__(self, binary: str, target: str, folder: pathlib.Path):
        configuration = PROMETHEUS_CONFIG.read_text()
        for old, new in (("127.0.0.1:8000", target), ("scrape_interval: 5s", "scrape_interval: 200ms"),
                         ("alerts.yml", str(ALERTS))):
            assert configuration.count(old) == 1, old
            configuration = configuration.replace(old, new)
        (folder / "prometheus.yml").write_text(configuration)
        self.log = folder / "prometheus.log"
        port = free_ports.free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text(errors="replace")
            try:
                if httpx.get(f"{self.url}/-/ready", timeout=30).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # it has not opened its port yet
            time.sleep(0.1)
        raise AssertionError(f"not ready:\n{self.log.read_text(errors='replace')}")

    def query(self, expression: str) -> list[dict]:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        assert answer.status_code == 200, (expression, answer.text)
        return answer.json()["data"]["result"]

    def wait_for(self, expression: str) -> list[dict]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := self.query(expression):
                return found
            time.sleep(0.1)
        raise AssertionError(f"no {expression}:\n{self.log.read_text(errors='replace')}")


@pytest.fixture
def prometheus(used_daemon, tmp_path):
    running = Prometheus(program("prometheus"), used_daemon[0].url.removeprefix("http://"), tmp_path)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.process.terminate()
        running.process.wait(30)


def test_prometheus_reads_what_was_sent(used_daemon, prometheus):
    _, usages = used_daemon
    # Any scrape may be too late for its interval, and then there is nothing until the next one.
    prometheus.wait_for("up == 1")
    scraped = prometheus.wait_for("vllm:generation_tokens_total")
    assert len(scraped) == 1
    assert float(scraped[0]["value"][1]) == 5 + 7 + 2 * 5
    assert scraped[0]["metric"]["engine"] == "0"
    assert scraped[0]["metric"]["model_name"]
    prompt = prometheus.wait_for("sum(vllm:prompt_tokens_by_source_total)")
    assert float(prompt[0]["value"][1]) == sum(usage["prompt_tokens"] for usage in usages)
    quantile = prometheus.wait_for(
        "histogram_quantile(0.5, sum by (le) (vllm:time_to_first_token_seconds_bucket))")
    assert 0 < float(quantile[0]["value"][1]) < 60
    # Everything that the dashboard draws and the alerts watch is valid PromQL.
    for expression in dashboard_expressions() + alert_expressions():
        for name, value in (("$__rate_interval", "1m"), ("$model_name", ".*"), ("$instance", ".*")):
            expression = expression.replace(name, value)
        prometheus.query(expression)
    rules = httpx.get(f"{prometheus.url}/api/v1/rules").json()["data"]["groups"]
    assert len(rules[0]["rules"]) == len(alert_expressions())
