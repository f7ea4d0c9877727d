"""Certificates for tests, created by openssl: an authority, and certificates that it signed."""

from __future__ import annotations

import subprocess
from pathlib import Path


def authority(folder: Path, name: str) -> Path:
    """The PEM certificate of a new authority; its key is beside it."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _make("-x509", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate))
    return certificate


def signed(by: Path, name: str, host: str) -> Path:
    """A PEM file with a new private key and its certificate, which the authority has signed for the host."""
    certificate, key, both = (by.with_name(f"{by.stem}-{name}.{end}") for end in ("crt", "key", "pem"))
    signer = ["-CA", str(by), "-CAkey", str(by.with_suffix(".key")), "-addext", f"subjectAltName={host}"]
    _make("-x509", *signer, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate))
    both.write_text(key.read_text() + certificate.read_text())
    return both


def _make(*arguments: str) -> None:
    command = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "2", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
