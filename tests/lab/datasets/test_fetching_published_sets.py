"""Fetching, from a server on this machine that has the paths of the real ones."""

import http.server
import io
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hitrate_lab.tables
from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets import fetch, read_exact, read_uci
from hitrate_lab.datasets.fetch import download
from hitrate_lab.datasets.files import read_verified
from hitrate_lab.datasets.table_sets import TABLE_SETS

UCI = "/ml/machine-learning-databases"


def car_data() -> bytes:
    """The table that is built in, as UCI has it: no header, other ends of lines."""
    text = (Path(hitrate_lab.tables.__file__).parent / "sets" / "car.csv").read_text(
        encoding="utf-8"
    )
    return "\r\n".join(text.splitlines()[1:]).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.pages.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.length != "none":
            self.send_header("Content-Length", str(len(content) + self.server.length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    pages: dict[str, bytes]
    length: int | str = 0


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as server:
        server.pages = {f"{UCI}/car/car.data": car_data()}
        server.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_a_set_is_fetched_checked_and_can_be_read(server, tmp_path):
    seen = []
    where = fetch("exact/car", tmp_path, mirror=server.address, progress=lambda *a: seen.append(a))
    assert where == tmp_path / "exact" / "car"
    assert files(tmp_path) == ["exact/car/SHA256SUMS", "exact/car/car.data"]
    size = len(car_data())
    assert seen[-1] == (f"{server.address}{UCI}/car/car.data", size, size)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    found = read_exact("car", data_dir=tmp_path)
    assert found.X_train.shape == (1382, 21)
    # The same again is no trouble.
    fetch("exact/car", tmp_path, mirror=server.address)
    assert files(tmp_path) == ["exact/car/SHA256SUMS", "exact/car/car.data"]


def test_a_server_that_does_not_say_how_much_there_is_will_do(server, tmp_path):
    server.length = "none"
    seen = []
    fetch("exact/car", tmp_path, mirror=server.address, progress=lambda *a: seen.append(a))
    assert seen[-1][1:] == (len(car_data()), None)


def test_what_is_not_the_set_is_not_written(server, tmp_path):
    server.pages[f"{UCI}/car/car.data"] = car_data().replace(b"vgood", b"good", 1)
    with pytest.raises(BadInput, match="exact/car: what came is not the set as published"):
        fetch("exact/car", tmp_path, mirror=server.address)
    assert files(tmp_path) == []


def test_a_failure_leaves_what_is_there(server, tmp_path):
    fetch("exact/car", tmp_path, mirror=server.address)
    before = (tmp_path / "exact/car/car.data").read_bytes()
    server.pages.clear()
    with pytest.raises(BadInput, match=r"could not get http://127.*car\.data: .*404"):
        fetch("exact/car", tmp_path, mirror=server.address)
    assert (tmp_path / "exact/car/car.data").read_bytes() == before
    assert len(read_exact("car", data_dir=tmp_path).y_test) == 346


def test_a_connection_that_ends_early_is_noticed(server, tmp_path):
    server.length = 10
    size = len(car_data())
    with pytest.raises(BadInput, match=f"ended after {size} of {size + 10} bytes|could not get"):
        fetch("exact/car", tmp_path, mirror=server.address)
    assert files(tmp_path) == []


def test_no_server_and_no_web_address_are_one_line_each(server):
    with pytest.raises(BadInput, match="could not get http://127") as error:
        download("http://127.0.0.1:9/nothing", timeout=2)
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="not an address of the web"):
        download("file:///etc/hostname")


def test_unknown_names_are_refused_before_anything_is_asked_for(tmp_path):
    with pytest.raises(BadInput, match="say which collection, such as 'exact/car'"):
        fetch("car", tmp_path)
    with pytest.raises(BadInput, match="no set 'nothing' in exact"):
        fetch("exact/nothing", tmp_path)
    with pytest.raises(BadInput, match=r"no set '\.\./x' in uci121"):
        fetch("uci121/../x", tmp_path)


def test_every_set_has_an_address_for_each_of_its_files():
    addresses = set()
    for whole, known in TABLE_SETS.items():
        found = known.files
        assert len(found) == (4 if whole.startswith("uci121/") else len(found))
        addresses.update(source.url for source in found.values())
        assert all(source.url.startswith("https://") for source in found.values())
    assert len(addresses) == 12 + 4 * 121


def archive(path: str, content: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as out:
        out.writestr(path, content)
    return held.getvalue()


def test_a_file_in_an_archive_is_taken_out(server, tmp_path, published):
    content = read_verified(published / "exact/audit-risk", "audit_risk.csv")
    page = f"{UCI}/00475/audit_data.zip"
    server.pages[page] = archive("audit_data/audit_risk.csv", content)
    fetch("exact/audit-risk", tmp_path, mirror=server.address)
    ours, theirs = (read_exact("audit-risk", data_dir=each) for each in (tmp_path, published))
    assert (ours.X_train == theirs.X_train).all()
    for wrong in (archive("other.csv", content), b"no archive"):
        server.pages[page] = wrong
        with pytest.raises(BadInput, match=r"no archive with audit_data/audit_risk\.csv in it"):
            fetch("exact/audit-risk", tmp_path, mirror=server.address)


def serve_uci(server, published, name, *, features=None):
    for file, source in TABLE_SETS[f"uci121/{name}"].files.items():
        content = read_verified(published / "uci121" / name, file)
        path = source.url.removeprefix("https://raw.githubusercontent.com")
        server.pages[path] = content
        if features is not None and file == f"{name}_py.dat.gz":
            server.pages[path] = features(content)


@pytest.mark.parametrize("name", ["iris", pytest.param("musk-2", marks=pytest.mark.slow)])
def test_sets_with_published_splits_are_fetched_and_packed(name, server, tmp_path, published):
    serve_uci(server, published, name)
    fetch(f"uci121/{name}", tmp_path, mirror=server.address)
    ours, theirs = (read_uci(name, split=3, data_dir=each) for each in (tmp_path, published))
    assert np.array_equal(ours.X_train, theirs.X_train)
    assert np.array_equal(ours.y_test, theirs.y_test)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"x" + content,
        lambda content: b"",
        lambda content: content.replace(b"0.", b"inf ", 1),
    ],
    ids=["half", "text", "nothing", "infinite"],
)
def test_features_that_are_known_by_their_number_alone_are_counted(
    change, server, tmp_path, published
):
    serve_uci(server, published, "musk-2", features=change)
    with pytest.raises(BadInput, match="uci121/musk-2: what came are not 6598 rows of 166 numbers"):
        fetch("uci121/musk-2", tmp_path, mirror=server.address)
    assert files(tmp_path) == []
