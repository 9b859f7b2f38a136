"""Self-signed certificates for loopback."""

import subprocess
from pathlib import Path


def make_certificate(directory: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate and its key, by openssl."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, *names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    return cert, key
