"""TLS, and certificates that are replaced while the daemon runs."""

import shutil
import signal
import socket
import ssl
import time

import httpx
import openai
import pytest

from access_tools import make_certificate


@pytest.fixture
def encrypted(start_daemon, tmp_path):
    """A daemon with TLS: (its port, the folder with cert.pem and cert.key, the daemon)."""
    make_certificate(tmp_path, "cert")
    daemon = start_daemon(f"--set=tls.cert_file={tmp_path / 'cert.pem'}",
                          f"--set=tls.key_file={tmp_path / 'cert.key'}").wait_until_ready()
    return int(daemon.url.rsplit(":", 1)[1]), tmp_path, daemon


def trusting(certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def subject_of(port: int, certificate) -> str:
    with socket.create_connection(("127.0.0.1", port)) as tcp:
        with trusting(certificate).wrap_socket(tcp, server_hostname="localhost") as tls:
            return dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"]


def test_official_client_works_over_tls(encrypted):
    port, folder, daemon = encrypted
    with httpx.Client(verify=trusting(folder / "cert.pem"), timeout=300) as http:
        client = openai.OpenAI(base_url=f"https://localhost:{port}/v1", api_key="none",
                               http_client=http, max_retries=0)
        model = client.models.list().data[0].id
        for _ in range(5):  # on one connection
            stream = client.completions.create(model=model, prompt="Hello", max_tokens=8,
                                               stream=True, extra_body={"ignore_eos": True})
            assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
        large = client.completions.create(model=model, prompt=["a b c " * 300] * 16, max_tokens=1)
        assert len(large.choices) == 16
    assert daemon.stop() == 0


def test_certificate_is_replaced_without_disturbing_connections(encrypted):
    port, folder, daemon = encrypted
    old = folder / "old.pem"
    shutil.copy(folder / "cert.pem", old)
    assert subject_of(port, old) == "cert"
    with httpx.Client(base_url=f"https://localhost:{port}", verify=trusting(old)) as kept:
        assert kept.get("/health").status_code == 200
        new_cert, new_key = make_certificate(folder, "next")
        shutil.copy(new_cert, folder / "cert.pem")
        daemon.process.send_signal(signal.SIGHUP)  # the key does not fit yet
        daemon.wait_for_log("cannot reload")
        assert subject_of(port, old) == "cert"
        shutil.copy(new_key, folder / "cert.key")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for_log("reloaded what=certificate")
        assert subject_of(port, new_cert) == "next"
        with pytest.raises(ssl.SSLError):
            subject_of(port, old)
        assert kept.get("/health").status_code == 200  # on the connection it had


def test_plain_http_and_old_protocols_are_refused_and_hurt_nobody(encrypted):
    port, folder, _ = encrypted
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
    context = trusting(folder / "cert.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port)) as tcp:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(tcp, server_hostname="localhost")
    assert httpx.get(f"https://localhost:{port}/health",
                     verify=trusting(folder / "cert.pem")).status_code == 200


def test_requests_sent_ahead_are_answered_in_order_under_tls(encrypted):
    port, folder, _ = encrypted
    one = b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ahead-%d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as tcp:
        tcp.settimeout(20)
        with trusting(folder / "cert.pem").wrap_socket(tcp, server_hostname="localhost") as tls:
            body = b'{"prompt":"Go","max_tokens":30,"ignore_eos":true,"stream":true}'
            tls.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                        b"Content-Length: %d\r\n\r\n%s" % (len(body), body) + one % 1)
            time.sleep(0.1)  # arrives while the stream is being sent
            tls.sendall(one % 2 + (one % 3)[:20])
            received = b""
            while b"X-Request-Id: ahead-2" not in received:
                received += tls.recv(65536)
            tls.sendall((one % 3)[20:])
            while b"X-Request-Id: ahead-3" not in received:
                received += tls.recv(65536)
    places = [received.index(b"[DONE]")] + [received.index(b"X-Request-Id: ahead-%d" % i)
                                            for i in (1, 2, 3)]
    assert places == sorted(places)


def test_who_goes_away_under_tls_frees_the_slot(start_daemon, tmp_path):
    cert, key = make_certificate(tmp_path, "cert")
    daemon = start_daemon(f"--set=tls.cert_file={cert}", f"--set=tls.key_file={key}",
                          "--set=engine.max_sequences=1",
                          "--set=server.debug=on").wait_until_ready()
    url = daemon.url.replace("http://127.0.0.1", "https://localhost")
    with httpx.Client(base_url=url, verify=trusting(cert), timeout=60) as http:
        with http.stream("POST", "/v1/completions",
                         json={"prompt": "Go", "max_tokens": 1900, "ignore_eos": True,
                               "stream": True}) as running:
            lines = running.iter_lines()
            next(lines)
        assert http.post("/v1/completions",
                         json={"prompt": "a", "max_tokens": 1}).status_code == 200
        assert http.get("/debug/cache?limit=1").json()["engine"]["generated_tokens"] < 1000
