"""A signed model is that of the key's owner, down to the last bit, or is refused."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from test_model_folder import fitted, rewritten

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.folder import load_model, save_model

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: E402


def write_keys(folder, name, kind=ed25519.Ed25519PrivateKey.generate, password=None):
    """Files of a private and a public key."""
    key = kind()
    locked = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    private, public = folder / f"{name}.pem", folder / f"{name}.public.pem"
    pem, plain = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
    public.write_bytes(key.public_key().public_bytes(pem, plain))
    return private, public


@pytest.fixture
def keys(tmp_path):
    return write_keys(tmp_path, "ours")


@pytest.fixture
def signed(tmp_path, keys):
    save_model(tmp_path / "model", fitted("car", "linear", "exact")[0], sign_key=keys[0])
    return tmp_path / "model"


def refused(folder, key):
    with pytest.raises(BadInput) as found:
        load_model(folder, verify_key=key)
    return str(found.value)


def test_a_signed_model_is_loaded_with_its_key_and_without(signed, keys):
    model, features = fitted("car", "linear", "exact")
    for key in (keys[1], None):
        loaded = load_model(signed, verify_key=key)
        np.testing.assert_array_equal(loaded.predict(features), model.predict(features))


def test_other_keys_and_changes_are_refused(signed, keys, tmp_path):
    _, other = write_keys(tmp_path, "other")
    assert "not signed with this key" in refused(signed, other)
    about = json.loads((signed / "model.json").read_text())
    rewritten(signed, "model.json", json.dumps({**about, "target": "other"}).encode())
    assert load_model(signed).about.target == "other"
    assert "not signed with this key, or was changed" in refused(signed, keys[1])


@pytest.mark.parametrize("damage", ["first", "last", "short", "long", "empty"])
def test_a_damaged_signature_is_refused(signed, keys, damage):
    path = signed / "manifest.sig"
    data = bytearray(path.read_bytes())
    assert len(data) == 64
    match damage:
        case "first":
            data[0] ^= 1
        case "last":
            data[-1] ^= 128
        case "short":
            del data[-1]
        case "long":
            data += b"\0"
        case "empty":
            data.clear()
    path.write_bytes(data)
    assert "not signed with this key" in refused(signed, keys[1])


def test_a_model_without_a_signature_is_refused_where_one_is_asked_for(signed, keys):
    (signed / "manifest.sig").unlink()
    load_model(signed)
    assert "is not signed: it has no manifest.sig" in refused(signed, keys[1])


def test_a_new_model_does_not_keep_the_old_signature(signed):
    save_model(signed, fitted("car", "linear", "cross_entropy")[0], overwrite=True)
    assert not (signed / "manifest.sig").exists()


def test_keys_of_another_kind_are_refused(signed, keys, tmp_path):
    private, public = keys
    model, _ = fitted("car", "linear", "exact")
    curve = write_keys(tmp_path, "curve", lambda: ec.generate_private_key(ec.SECP256R1()))
    locked, _ = write_keys(tmp_path, "locked", password=b"x")
    (tmp_path / "noise.pem").write_bytes(b"-----BEGIN")
    for key in (public, curve[0], locked, tmp_path / "noise.pem"):
        with pytest.raises(BadInput, match="no private key of Ed25519"):
            save_model(tmp_path / "new", model, sign_key=key)
    for key in (private, curve[1], tmp_path / "noise.pem"):
        assert "no public key of Ed25519" in refused(signed, key)
    for key in (tmp_path, tmp_path / "nothing"):
        assert "there is no such file" in refused(signed, key)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL")
def test_openssl_makes_keys_and_checks_signatures(tmp_path):
    """Another program makes the keys, checks our signature, and makes one that we take."""

    def openssl(*words):
        return subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True, text=True)

    if openssl("genpkey", "-algorithm", "ed25519", "-out", "private.pem").returncode:
        pytest.skip("an OpenSSL without Ed25519")
    openssl("pkey", "-in", "private.pem", "-pubout", "-out", "public.pem")
    model, _ = fitted("car", "linear", "exact")
    save_model(tmp_path / "model", model, sign_key=tmp_path / "private.pem")
    load_model(tmp_path / "model", verify_key=tmp_path / "public.pem")
    words = ["-rawin", "-in", "model/manifest.json"]
    check = ["pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", *words]
    if "rawin" in (ended := openssl(*check, "-sigfile", "model/manifest.sig")).stderr:
        pytest.skip("an OpenSSL that takes no raw input")
    assert ended.returncode == 0, ended.stderr
    openssl("pkeyutl", "-sign", "-inkey", "private.pem", *words, "-out", "model/manifest.sig")
    load_model(tmp_path / "model", verify_key=tmp_path / "public.pem")


def test_the_command_signs_and_checks(keys, tmp_path):
    private, public = keys
    _, other = write_keys(tmp_path, "other")

    def hitrate(*words):
        words = [sys.executable, "-m", "hitrate_lab", *map(str, words)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)

    fit = ["fit", "iris", "--trials", "1", "--method", "linear/cross_entropy", "--out", "model"]
    ended = hitrate(*fit, "--sign-key", public)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "model").exists()
    assert hitrate(*fit, "--sign-key", private).returncode == 0
    predict = ["predict", "model", "iris", "--out", "out.csv", "--verify-key"]
    ended = hitrate(*predict, other)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        "hitrate: model was not signed with this key, or was changed afterwards"
    ]
    assert not (tmp_path / "out.csv").exists()
    assert hitrate(*predict, public).returncode == 0
