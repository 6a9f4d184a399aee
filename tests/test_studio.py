"""The studio as a browser and as an attacker meet it: a real server, real requests."""

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from test_review import N_DARK, N_POOL, save

from stssad import Run
from stssad.review.labels import Labels

pytest.importorskip("fastapi", reason="in the extra studio")
pytest.importorskip("skimage", reason="textures need the extra `demo`")
COMMAND = str(Path(sys.executable).with_name("stssad"))
OURS = {"x-stssad": "1", "content-type": "application/json"}


@dataclass
class Studio:
    """A server that runs."""

    process: "subprocess.Popen[str] | None"
    host: str
    token: str
    root: Path

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        cookie: bool = True,
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        given = {"Cookie": f"stssad={self.token}"} if cookie else {}
        connection.request(method, path, body, {**given, **(headers or {})})
        answer = connection.getresponse()
        found = answer.status, answer.read(), dict(answer.getheaders())
        connection.close()
        return found

    def get(self, path: str) -> Any:
        status, body, _ = self.ask("GET", path)
        assert status == 200, (path, body)
        return json.loads(body)

    def post(self, path: str, content: Any) -> tuple[int, Any]:
        status, body, _ = self.ask("POST", path, json.dumps(content).encode(), OURS)
        return status, json.loads(body)


def started(root: Path, images: Path) -> Studio:
    process = subprocess.Popen(
        [COMMAND, "studio", str(root), "--images", str(images), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "400"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    address = next(word for word in line.split() if word.startswith("http://"))
    host, _, token = address.removeprefix("http://").partition("/?token=")
    for _ in range(200):
        try:
            socket.create_connection((host.split(":")[0], int(host.split(":")[1])), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    return Studio(process, host, token, root)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, and a folder of runs with one that is finished."""
    made = tmp_path_factory.mktemp("studio")
    save(made / "images/good", 50, 0)
    save(made / "images/pool", N_POOL, 1, N_DARK)
    (made / "images/pool/<img src=x onerror=alert(1)>.png").write_bytes(
        (made / "images/pool/30.png").read_bytes()
    )
    words = [
        "fit",
        "--normal",
        made / "images/good",
        "--unlabeled",
        made / "images/pool",
        "--out",
        made / "runs/bolt",
        "--max-iterations",
        1,
        "--tuning-size",
        32,
        "--jobs",
        1,
        "--augmentation",
        "patch",
        "--quiet",
    ]
    subprocess.run([COMMAND, *map(str, words)], check=True)
    return made


@pytest.fixture()
def studio(place: Path, tmp_path: Path) -> Iterator[Studio]:
    root = Path(shutil.copytree(place / "runs", tmp_path / "runs"))
    found = started(root, place / "images")
    yield found
    found.process.kill()
    found.process.communicate()


def png(value: int = 120, size: int = 64) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def drop(studio: Studio, content: bytes, name: str) -> tuple[int, Any]:
    path = f"/run/bolt/drop?file={quote(name)}"
    status, body, _ = studio.ask("POST", path, content, {"x-stssad": "1"})
    return status, json.loads(body) if body.startswith((b"[", b"{")) else body.decode()


def test_strangers_are_not_let_in(studio: Studio) -> None:
    assert studio.ask("GET", "/", cookie=False)[0] == 403
    assert studio.ask("GET", "/?token=wrong", cookie=False)[0] == 403
    assert studio.ask("GET", "/run/bolt/data", cookie=False)[0] == 403
    assert studio.ask("GET", "/", headers={"Host": "evil.example"})[0] == 400
    assert studio.ask("GET", "/", headers={"Host": "x:80"})[0] == 400
    body = json.dumps({"i": 0, "label": "good"}).encode()
    other = {**OURS, "Origin": "http://evil.example"}
    assert studio.ask("POST", "/run/bolt/labels", body, other)[0] == 403
    assert studio.ask("POST", "/run/bolt/labels", body, {**OURS, "Origin": "null"})[0] == 403
    site = {**OURS, "Sec-Fetch-Site": "cross-site"}
    assert studio.ask("POST", "/run/bolt/labels", body, site)[0] == 403
    assert studio.ask("POST", "/run/bolt/labels", body)[0] == 403  # as a form of another page would
    assert studio.get("/run/bolt/labels") == {}
    mine = {**OURS, "Origin": f"http://{studio.host}"}
    assert studio.ask("POST", "/run/bolt/labels", body, mine)[0] == 200
    status, _, headers = studio.ask("GET", f"/?token={studio.token}", cookie=False)
    assert status == 303 and "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"] and headers["location"] == "/"
    policy = studio.ask("GET", "/")[2]["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../images",
        "%2e%2e",
        "..%2fimages",
        "a/b",
        ".hidden",
        "bolt%00",
        "~",
        "C:",
        "bolt/../../images",
        "nowhere",
    ],
)
def test_no_name_leads_out_of_the_folder(studio: Studio, name: str) -> None:
    quoted_name = name if "%" in name else quote(name, safe="")
    for path in ("data", "thumb/0", "image/0", "next", "labels", "flagged.zip", "report.html", ""):
        status, body, _ = studio.ask("GET", f"/run/{quoted_name}/{path}".rstrip("/"))
        assert status in (404, 405, 400), (path, status, body[:100])
    status, _ = studio.post(f"/run/{quoted_name}/threshold", {"score": 1.0})
    assert status in (400, 404, 405)


def test_links_out_of_the_folder_are_not_followed(studio: Studio, place: Path) -> None:
    outside = Path(shutil.copytree(place / "runs/bolt", studio.root.parent / "outside"))
    (studio.root / "link").symlink_to(outside)
    assert studio.ask("GET", "/run/link/data")[0] == 404
    assert all(run["name"] != "link" for run in studio.get("/runs"))
    assert studio.ask("GET", "/files/..%2f..%2fapp.py")[0] == 404


def test_images_outside_of_the_given_folders_are_not_shown(studio: Studio, tmp_path: Path) -> None:
    """A run from a stranger may name any file."""
    from stssad.report.material import Material

    secret = tmp_path / "secret.png"
    secret.write_bytes(png(7, 200))
    folder = studio.root / "bolt"
    material = Material.load(folder)
    material.files[0] = str(secret)
    material.save(folder)
    _, body, _ = studio.ask("GET", "/run/bolt/image/0")
    assert Image.open(io.BytesIO(body)).size == (64, 64)  # the run's own small one
    assert studio.ask("GET", "/run/bolt/image/999")[0] == 404
    assert studio.ask("GET", "/run/bolt/image/-1")[0] == 404
    status, said = studio.post(
        "/fit", {"name": "new", "normal": "/etc", "unlabeled": str(tmp_path)}
    )
    assert status == 404 and "isn't in" in said["error"] and not (studio.root / "new").exists()


def test_dropped_images_are_scored_and_bad_ones_named(studio: Studio, place: Path) -> None:
    content = (place / "images/pool/00.png").read_bytes()
    status, (found,) = drop(studio, content, "../../part.png")
    assert status == 200 and found["flagged"] and found["map"] and found["mapSide"] == 4
    rows = {Path(r.image_path).name: r for r in Run.open(studio.root / "bolt").predictions()}
    assert found["score"] == pytest.approx(rows["00.png"].pred_score, abs=1e-3)
    assert "cannot read" in drop(studio, b"no image", "a.png")[1][0]["error"]
    assert "cannot read" in drop(studio, content[:200], "half.png")[1][0]["error"]
    bomb = png(1, 64).replace(
        (64).to_bytes(4, "big") * 2, (60000).to_bytes(4, "big") * 2
    )  # a header that claims 3.6 billion pixels
    assert "cannot read" in drop(studio, bomb, "bomb.png")[1][0]["error"]
    began = time.monotonic()
    drop(studio, content, "again.png")
    assert time.monotonic() - began < 3
    assert not list(studio.root.parent.rglob("part.png"))


def test_archives_are_unpacked_within_limits(studio: Studio, place: Path) -> None:
    content = (place / "images/pool/00.png").read_bytes()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../../a.png", content)
        archive.writestr("notes.txt", "no image")
        archive.writestr("huge.png", b"\0" * (70 * 2**20))
    status, found = drop(studio, file.getvalue(), "some.ZIP")
    assert status == 200 and [Path(each["name"]).name for each in found] == ["a.png", "huge.png"]
    assert "score" in found[0] and "larger than 64 MB" in found[1]["error"]
    assert "cannot read" in drop(studio, b"PK broken", "x.zip")[1][0]["error"]


def test_a_gigabyte_is_refused(studio: Studio) -> None:
    headers = {"x-stssad": "1", "Content-Length": str(2**30)}
    connection = http.client.HTTPConnection(studio.host, timeout=30)
    connection.putrequest("POST", "/run/bolt/drop?file=a.png")
    for name, value in {**headers, "Cookie": f"stssad={studio.token}"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_slow_clients_dont_hold_up_others(studio: Studio) -> None:
    slow = [socket.create_connection(tuple(studio.host.split(":")), 30) for _ in range(20)]
    for each in slow:
        each.sendall(b"POST /run/bolt/drop?file=a HTTP/1.1\r\nHost: ")
    began = time.monotonic()
    assert studio.get("/runs") and time.monotonic() - began < 5
    for each in slow:
        each.close()


@contextmanager
def impatient(root: Path, patience: float) -> Iterator[Studio]:
    """The real server and application, in a thread, with less patience than the command has."""
    import uvicorn

    from stssad.cli.studio import bind_socket
    from stssad.studio.app import create_app
    from stssad.studio.shelf import Shelf

    with bind_socket(0) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        app = create_app(Shelf(root, (root,)), "secret", {host}, patience)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield Studio(None, host, "secret", root)
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


@pytest.mark.parametrize("path", ["drop?file=a.png", "labels"])
def test_a_client_that_stops_sending_is_refused(place: Path, path: str) -> None:
    """Whoever reads the body: the upload, or FastAPI itself."""
    with impatient(place / "runs", 0.5) as studio:
        connection = http.client.HTTPConnection(studio.host, timeout=20)
        connection.putrequest("POST", f"/run/bolt/{path}")
        cookie = {"Cookie": f"stssad={studio.token}", "Content-Length": "100"}
        for name, value in {**OURS, **cookie}.items():
            connection.putheader(name, value)
        connection.endheaders(b"x")  # the first of a hundred bytes, and no other
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (408, b"the request arrived too slowly")
        assert answer.headers["x-frame-options"] == "DENY"
        connection.close()


def test_a_request_without_a_length_is_refused_once_it_is_too_large(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stssad.studio.guard.MOST_BYTES", 1000)
    with impatient(place / "runs", 20) as studio:
        connection = http.client.HTTPConnection(studio.host, timeout=20)
        chunks = (bytes(200) for _ in range(50))
        headers = {"x-stssad": "1", "Cookie": f"stssad={studio.token}"}
        connection.request("POST", "/run/bolt/drop?file=a", chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


def test_threshold_and_labels_and_exports(studio: Studio) -> None:
    data = studio.get("/run/bolt/data")
    assert len(data["items"]) == N_POOL + 1 and "flagged" in data["headline"]
    scores = sorted((item["score"] for item in data["items"]), reverse=True)
    middle = (scores[4] + scores[5]) / 2
    assert studio.post("/run/bolt/threshold", {"score": middle}) == (200, {"flagged": 5})
    assert studio.get("/run/bolt/data")["threshold"] == middle
    assert studio.post("/run/bolt/threshold", {"score": "x"})[0] in (400, 422)
    first = studio.get("/run/bolt/next?who=ann")["next"]
    other = studio.get("/run/bolt/next?who=bob")["next"]
    assert not set(first) & set(other) and len(first) + len(other) == N_POOL + 1
    assert studio.post("/run/bolt/labels", {"i": first[0], "label": "good", "who": "ann"})[0] == 200
    assert studio.post("/run/bolt/labels", {"i": first[0], "label": "nice"})[0] == 400
    assert studio.post("/run/bolt/labels", {"i": 9999, "label": "good"})[0] == 404
    assert studio.get("/run/bolt/labels") == {str(first[0]): "good"}
    assert studio.post("/run/bolt/undo", {"who": "ann"})[1] == {"i": first[0]}
    archive = zipfile.ZipFile(io.BytesIO(studio.ask("GET", "/run/bolt/flagged.zip")[1]))
    assert len(archive.namelist()) == 5 and all("/" not in name for name in archive.namelist())
    text = studio.ask("GET", "/run/bolt/list.csv")[1].decode("utf-8")
    assert text.startswith("\ufeffrank,image,flagged") and len(text.splitlines()) == N_POOL + 2
    assert studio.ask("GET", "/run/bolt/model.onnx")[1][:2] == b"\x08\x08"


def test_folders_are_listed_and_none_outside(studio: Studio, place: Path) -> None:
    start = studio.get("/folders")
    assert start["path"] == str(place / "images") and start["parent"] is None
    assert [each["name"] for each in start["folders"]] == ["good", "pool"]
    pool = studio.get(f"/folders?path={quote(str(place / 'images/pool'))}")
    assert pool["n_images"] == N_POOL + 1 and pool["parent"] == str(place / "images")
    (place / "images/way-out").symlink_to(place / "runs")
    try:
        assert [each["name"] for each in studio.get("/folders")["folders"]] == ["good", "pool"]
        inside = ("..", "way-out", "nowhere", "pool/00.png")
        for path in ("/", "/etc", str(place), "a\0b", *(f"{place}/images/{x}" for x in inside)):
            assert studio.ask("GET", f"/folders?path={quote(path)}")[0] == 404, path
    finally:
        (place / "images/way-out").unlink()


def test_names_of_groups_are_kept_and_shown_everywhere(studio: Studio) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    assert studio.post("/run/bolt/groups", {"group": 0, "name": "  deep   crack "})[0] == 200
    assert studio.post("/run/bolt/groups", {"group": 1, "name": evil})[1]["0"] == "deep crack"
    assert studio.get("/run/bolt/data")["groupNames"] == {"0": "deep crack", "1": evil}
    assert b"deep crack" in studio.ask("GET", "/run/bolt/list.csv")[1]
    page = studio.ask("GET", "/run/bolt/report.html")[1].decode()
    assert "deep crack" in page and evil not in page
    for bad in (
        {"group": -1, "name": "a"},
        {"group": 0, "name": "a" * 61},
        {"group": 0, "name": 3},
        {"group": "x", "name": "a"},
        {"name": "a"},
    ):
        assert studio.post("/run/bolt/groups", bad)[0] == 422, bad
    assert studio.post("/run/bolt/groups", {"group": 1, "name": " "})[1] == {"0": "deep crack"}
    for i in range(6):
        studio.post("/run/bolt/labels", {"i": i, "label": "defect"})
    studio.post("/run/bolt/refit", {})
    studio.post("/run/bolt/accept", {})
    assert studio.get("/run/bolt-2/data")["groupNames"] == {"0": "deep crack"}
    for damage in ("[]", '{"0": 1}', '{"a": "b"}', '{"0": "' + "a" * 99 + '"}', "{"):
        (studio.root / "bolt/groups.json").write_text(damage)
        status, said = studio.ask("GET", "/run/bolt/data")[:2]
        assert status == 400 and b"name the groups again" in said, damage


def test_refit_becomes_a_run_only_when_it_is_accepted(studio: Studio) -> None:
    assert studio.post("/run/bolt/accept", {})[0] == 400
    assert "nothing is labeled" in studio.post("/run/bolt/refit", {})[1]["error"]
    for i in range(6):
        studio.post("/run/bolt/labels", {"i": i, "label": "defect"})
    for i in range(20, 25):
        studio.post("/run/bolt/labels", {"i": i, "label": "good"})
    before = (studio.root / "bolt/model.json").read_bytes()
    status, found = studio.post("/run/bolt/refit", {})
    assert status == 200 and (found["n_good"], found["n_defects"]) == (5, 6)
    assert found["after"]["recall"][0] >= found["before"]["recall"][0]
    assert (studio.root / "bolt/model.json").read_bytes() == before
    assert [run["name"] for run in studio.get("/runs")] == ["bolt"]
    assert studio.post("/run/bolt/accept", {}) == (200, {"name": "bolt-2"})
    assert studio.get("/run/bolt-2/data")["items"]


def test_a_killed_server_loses_no_label(studio: Studio, place: Path) -> None:
    acknowledged: list[int] = []
    stop = threading.Event()

    def add_labels(start: int) -> None:
        for i in range(start, N_POOL, 3):
            if stop.is_set():
                return
            try:
                if studio.post("/run/bolt/labels", {"i": i, "label": "good", "who": "x"})[0] == 200:
                    acknowledged.append(i)
            except (OSError, http.client.HTTPException):
                return

    threads = [threading.Thread(target=add_labels, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 6:
        time.sleep(0.01)
    studio.process.send_signal(signal.SIGKILL)
    studio.process.wait()
    stop.set()
    for thread in threads:
        thread.join()
    paths = [row.image_path for row in Run.open(studio.root / "bolt").predictions()]
    kept = Labels(studio.root / "bolt").all()
    assert all(paths[i] in kept for i in acknowledged)
    again = started(studio.root, place / "images")
    try:
        assert len(again.get("/run/bolt/labels")) == len(kept)
    finally:
        again.process.kill()
        again.process.communicate()


def wait_for(studio: Studio, name: str, state: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = next(run for run in studio.get("/runs") if run["name"] == name)
        if found["state"] == state:
            return
        assert not (found["progress"] or {}).get("error"), found
        time.sleep(0.2)
    raise AssertionError(f"{name} isn't {state} after {seconds} s: {found}")


@pytest.mark.slow
def test_a_fit_outlives_the_server_and_is_resumed(studio: Studio, place: Path) -> None:
    words = {"normal": str(place / "images/good"), "unlabeled": str(place / "images/pool")}
    assert studio.post("/fit", {"name": "new", **words})[0] == 200
    assert "one fit at a time" in studio.post("/fit", {"name": "other", **words})[1]["error"]
    assert "already" in studio.post("/fit", {"name": "new", **words})[1]["error"]
    wait_for(studio, "new", "running")
    time.sleep(5)
    assert studio.post("/run/new/stop", {})[0] == 200
    wait_for(studio, "new", "stopped")
    assert studio.post("/run/new/resume", {})[0] == 200
    studio.process.kill()
    studio.process.wait()
    again = started(studio.root, place / "images")
    try:
        wait_for(again, "new", "finished", 300)
        assert again.get("/run/new/data")["items"]
    finally:
        again.process.kill()
        again.process.communicate()


@pytest.mark.slow
def test_the_whole_story_in_a_browser(studio: Studio, place: Path, browser: Any) -> None:
    """From two folders to a reviewed, refitted, exported run, by mouse and keys."""
    tab = browser.new_context(viewport={"width": 1100, "height": 900}).new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda said: said.type == "error" and errors.append(said.text))
    tab.goto(f"http://{studio.host}/?token={studio.token}")
    assert "token" not in tab.url
    tab.fill("[name=name]", "story")
    for each, name in (("normal", "good"), ("unlabeled", "pool")):  # by the folder picker
        tab.click(f"[data-browse={each}]")
        tab.click(f"#folders >> text={name}")
        tab.wait_for_selector(f"#browsed:has-text('/images/{name}')")
        tab.click("#use")
        assert tab.input_value(f"[name={each}]") == str(place / "images" / name)
    tab.click("text=Start fit")
    tab.wait_for_selector("#bar")
    tab.reload()  # in the middle of a fit
    tab.wait_for_selector(".card", timeout=300_000)
    assert tab.locator(".card").count() == N_POOL + 1
    tab.locator("#threshold").focus()
    tab.keyboard.press("ArrowRight")
    tab.click("#save")
    tab.wait_for_selector("#save:disabled")
    tab.locator(".group input").first.fill("dark square")
    tab.keyboard.press("Tab")
    tab.reload()
    tab.wait_for_selector(".card")
    assert tab.locator(".group input").first.input_value() == "dark square"
    tab.click("[data-tab=review]")
    for _ in range(12):
        tab.wait_for_selector("#shown img")
        name = tab.locator("#shown-name").inner_text()
        number = int(name[:2]) if name[:2].isdigit() else 99
        tab.keyboard.press("d" if number < N_DARK else "g")
        tab.wait_for_timeout(150)
    tab.keyboard.press("z")
    tab.wait_for_timeout(300)
    assert len(Labels(studio.root / "story").all()) == 11
    tab.click("#refit")
    tab.wait_for_selector("#accept", timeout=60_000)
    tab.click("#accept")
    tab.wait_for_url("**/run/story-2")
    tab.wait_for_selector(".card")
    tab.click("[data-tab=score]")
    some = [place / "images/pool" / f"{k:02d}.png" for k in range(20)]
    tab.set_input_files("#choose", [str(path) for path in some])
    tab.locator(".dropped-card").nth(19).wait_for(timeout=60_000)
    assert tab.locator(".dropped-card.flagged").count() >= 5
    tab.click("[data-tab=export]")
    with tab.expect_download() as download:
        tab.click("text=Flagged images")
    assert zipfile.ZipFile(download.value.path()).namelist()
    assert errors == []
    tab.set_viewport_size({"width": 390, "height": 800})
    for name in ("results", "review", "score", "export"):
        tab.click(f"[data-tab={name}]")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name


@pytest.mark.slow
def test_two_browsers_review_at_once(studio: Studio, browser: Any) -> None:
    tabs = []
    for who in ("ann", "bob"):
        tab = browser.new_context().new_page()
        tab.goto(f"http://{studio.host}/?token={studio.token}")
        tab.goto(f"http://{studio.host}/run/bolt")
        tab.wait_for_selector(".card")
        tab.evaluate("who => { document.getElementById('who').value = who }", who)
        tab.click("[data-tab=review]")
        tab.wait_for_selector("#shown img")
        tabs.append(tab)
    for _ in range(8):
        names = [tab.locator("#shown-name").inner_text() for tab in tabs]
        assert names[0] != names[1]
        for tab in tabs:
            tab.keyboard.press("u")
            tab.wait_for_timeout(200)
    assert len(Labels(studio.root / "bolt").all()) == 16


def violations(tab: Any) -> list[str]:
    """What axe-core finds against WCAG 2.1 AA on the page as it is, contrast included."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="in the extra dev")
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = axe.Axe().run(tab, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]} {node['failureSummary'][:300]}"
        for each in found
        for node in each["nodes"][:2]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible(studio: Studio, browser: Any, theme: str) -> None:
    for i in range(6):
        studio.post("/run/bolt/labels", {"i": i, "label": "defect"})
    # bypass_csp: what is tried is the page, by a script that its policy would refuse.
    context = browser.new_context(color_scheme=theme, bypass_csp=True)
    tab = context.new_page()
    tab.goto(f"http://{studio.host}/?token={studio.token}")
    assert violations(tab) == []
    tab.click("[data-browse=normal]")
    tab.wait_for_selector("#folders button")
    assert violations(tab) == []
    tab.goto(f"http://{studio.host}/run/bolt")
    tab.wait_for_selector(".card")
    assert violations(tab) == []
    tab.locator(".card").first.click()
    tab.wait_for_selector("dialog[open] img")
    assert violations(tab) == []
    tab.keyboard.press("Escape")
    tab.click("[data-tab=review]")
    tab.wait_for_selector("#shown img")
    tab.click("#refit")
    tab.wait_for_selector("#accept", timeout=60_000)
    assert violations(tab) == []
    for name in ("score", "export"):
        tab.click(f"[data-tab={name}]")
        assert violations(tab) == []
    tab.goto((studio.root / "bolt/report.html").as_uri())
    tab.evaluate("document.getElementById('method').open = true")
    assert violations(tab) == []
