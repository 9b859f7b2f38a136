"""Self-signed certificates for loopback, and an authority whose certificates last as a test wants."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
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


@dataclass(frozen=True)
class Authority:
    """An authority of its own, and what it signs; ``directory`` has its `ca.pem`."""

    directory: Path

    def __post_init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        made = _begin(own, own, key, timedelta(days=3650))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        _write_key(self.directory / "ca.key", key)
        self.cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))

    @property
    def cert(self) -> Path:
        return self.directory / "ca.pem"

    def sign(self, name: str, addresses: Sequence[str], lasts: timedelta) -> tuple[Path, Path]:
        """A certificate for addresses and its key, in PEM, in files of that name; one that lasts
        less than no time has expired.
        """
        ca = x509.load_pem_x509_certificate(self.cert.read_bytes())
        signing = load_pem_private_key((self.directory / "ca.key").read_bytes(), password=None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.IPAddress(ip_address(address)) for address in addresses]
        made = _begin(subject, ca.subject, key, lasts)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        cert, private = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        _write_key(private, key)
        cert.write_bytes(made.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM))
        return cert, private


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=7))
        .not_valid_after(now + lasts)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encryption = NoEncryption()
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption_algorithm=encryption)
    )
    path.chmod(0o600)
