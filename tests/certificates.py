"""Certificates of the test's own, made by the openssl program."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def made(folder: Path, name: str, *, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 2) -> tuple[Path, Path]:
    """(certificate, key), signed by itself. names: that it is for.  days: from now on. Skips where openssl is not."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the openssl program")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-days", str(days)]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def shown(pair: tuple[Path, Path]) -> ssl.SSLContext:
    """For a server that shows itself with this."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    return context
