"""Keys and certificates for the tests that need them."""

import os
import pathlib
import subprocess


def make_key(binary: str, path: pathlib.Path, name: str, *arguments: str) -> str:
    """Adds a key to the file and returns it."""
    run = subprocess.run([os.path.abspath(binary), "make-key", "--file", str(path), "--name", name,
                          *arguments], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def make_certificate(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate of localhost that signs itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    return cert, key
