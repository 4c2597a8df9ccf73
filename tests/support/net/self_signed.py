"""A certificate that nobody has signed but itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path, common_name: str, alternative_name: str) -> tuple[Path, Path]:
    """Return a certificate for this name (`DNS:…` or `IP:…`), and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is needed to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", f"/CN={common_name}"]
    command += ["-addext", f"subjectAltName={alternative_name}"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
