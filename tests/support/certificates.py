"""Self-signed certificates for loopback."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_LASTS = timedelta(days=2)


def make_certificate(directory: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate and its key, in PEM."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    addresses = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    key.write_bytes(
        private.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, encryption_algorithm=NoEncryption()
        )
    )
    key.chmod(0o600)
    cert.write_bytes(made.public_bytes(Encoding.PEM))
    return cert, key
