"""Certificates for tests of TLS: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]


class Authority:
    """Signs certificates for 127.0.0.1, and writes them and their keys into a folder.

    Args:
        folder: where ``ca.pem`` and what is signed are written.
        name: distinguishes it from other authorities.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(self._signed(self._name, self._key, is_authority=True))

    def sign(self, name: str, *, password: bytes | None = None) -> tuple[Path, Path]:
        """Files of a certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(self._signed(subject, key, is_authority=False))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password)
                if password
                else serialization.NoEncryption(),
            )
        )
        return certificate, secret

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            # what Python 3.13 insists on
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
                critical=False,
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=is_authority,
                    crl_sign=is_authority,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
