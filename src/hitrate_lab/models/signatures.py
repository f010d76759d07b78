"""Who wrote a model: a signature of its manifest, by Ed25519.

The manifest has the sums of all other files, so a signature of its bytes is one of the whole
folder. Keys are PEM files and the signature is bare, 64 bytes, as OpenSSL makes and takes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SIGNATURE = "manifest.sig"
# Of a signature, and more than any key has.
LENGTH, LARGEST_KEY = 64, 2**16


def private_key(path: str | Path) -> Ed25519PrivateKey:
    """The key to sign with.

    Parameters
    ----------
    path : str or Path
        A PEM file without a password.

    Raises
    ------
    BadInput
    """
    serialization, ed25519, unknown = _cryptography()
    text = _key_file(path)
    key: Ed25519PrivateKey | None
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (TypeError, ValueError, unknown):
        # It is a TypeError where a password is needed.
        key = None
    if key is None or not isinstance(key, ed25519.Ed25519PrivateKey):
        raise BadInput(f"{path} is no private key of Ed25519 in PEM, without a password")
    return key


def public_key(path: str | Path) -> Ed25519PublicKey:
    """The key to check signatures with.

    Parameters
    ----------
    path : str or Path
        A PEM file.

    Raises
    ------
    BadInput
    """
    serialization, ed25519, unknown = _cryptography()
    text = _key_file(path)
    key: Ed25519PublicKey | None
    try:
        key = serialization.load_pem_public_key(text)
    except (ValueError, unknown):
        key = None
    if key is None or not isinstance(key, ed25519.Ed25519PublicKey):
        raise BadInput(f"{path} is no public key of Ed25519 in PEM")
    return key


def check_signature(folder: Path, manifest: bytes, key: Ed25519PublicKey) -> None:
    """Refuse a manifest that the owner of a key has not signed.

    Parameters
    ----------
    folder : Path
        Of the model.
    manifest : bytes
        As they will be used, so that nobody can change them in between.
    key : Ed25519PublicKey

    Raises
    ------
    BadInput
    """
    from cryptography.exceptions import InvalidSignature

    try:
        with (folder / SIGNATURE).open("rb") as file:
            # One more shows that it is none.
            signature = file.read(LENGTH + 1)
    except FileNotFoundError:
        raise BadInput(f"{folder} is not signed: it has no {SIGNATURE}") from None
    except OSError as error:
        raise BadInput(
            f"{folder / SIGNATURE}: cannot be read ({error.strerror or error})"
        ) from None
    try:
        key.verify(signature, manifest)
    except InvalidSignature:
        raise BadInput(
            f"{folder} was not signed with this key, or was changed afterwards"
        ) from None


def _key_file(path: str | Path) -> bytes:
    try:
        # A pipe would be waited for.
        if not os.path.isfile(path):
            raise BadInput(f"{path}: there is no such file")
        with open(path, "rb") as file:
            return file.read(LARGEST_KEY)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None


def _cryptography() -> tuple[Any, Any, type[Exception]]:
    """Two of its modules, and its error for keys of a kind that it does not know."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise BadInput("signatures need cryptography: pip install 'hitrate[signed]'") from None
    return serialization, ed25519, UnsupportedAlgorithm
