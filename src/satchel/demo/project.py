"""The scratch project of the story: a small Flask app whose requirements.txt lacks one line."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import venv
from pathlib import Path

README = """\
# Notice board 公告板

A small Flask app that shows the notices of the day.

- `app.py` is the entry 项目入口
- `requirements.txt` lists the packages 依赖列表
- `test_app.py` holds the tests 测试

## Start 启动

    pip install -r requirements.txt
    python3 app.py            # starts on a free port, asks itself for its page, prints OK, ends
    python3 app.py --serve    # stays up on http://127.0.0.1:5000

## Test 测试

    python3 -m unittest -v
"""

APP = '''\
"""Notice board 公告板: shows the notices of the day."""

import argparse
import threading

import requests
from flask import Flask, jsonify
from werkzeug.serving import make_server

NOTICES = ["Library closes at six", "今晚七点:数据库分享会"]

app = Flask(__name__)


@app.get("/")
def page():
    items = "".join(f"<li>{notice}</li>" for notice in NOTICES)
    return f"<!doctype html><title>公告板</title><h1>Notices</h1><ul>{items}</ul>"


@app.get("/notices")
def notices():
    return jsonify(notices=NOTICES)


def check():
    """Start for real on a free port, fetch our own page, and say where it was."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        with requests.Session() as session:
            session.trust_env = False  # no proxy between us and ourselves
            answer = session.get(url, timeout=5)
        answer.raise_for_status()
        if NOTICES[0] not in answer.text:
            raise RuntimeError("the page shows no notices")
        return url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="start, fetch our own page, end (default)")
    choice.add_argument("--serve", action="store_true", help="stay up")
    parser.add_argument("--port", type=int, default=5000, help="with --serve")
    options = parser.parse_args()
    if options.serve:
        app.run("127.0.0.1", options.port)
    else:
        print(f"OK 启动成功 {check()}")


if __name__ == "__main__":
    main()
'''

REQUIREMENTS = "flask>=3.0\n"

TESTS = """\
import unittest

import app


class NoticeBoard(unittest.TestCase):
    def setUp(self):
        self.client = app.app.test_client()

    def test_page_shows_every_notice(self):
        answer = self.client.get("/")
        self.assertEqual(answer.status_code, 200)
        for notice in app.NOTICES:
            self.assertIn(notice, answer.get_data(as_text=True))

    def test_notices_are_json(self):
        self.assertEqual(self.client.get("/notices").get_json(), {"notices": app.NOTICES})

    def test_unknown_page_is_not_found(self):
        self.assertEqual(self.client.get("/absent").status_code, 404)

    def test_app_starts_and_answers_over_http(self):
        self.assertTrue(app.check().startswith("http://127.0.0.1:"))


if __name__ == "__main__":
    unittest.main()
"""

PIP = """\
#!/bin/sh
# The outer pip, working on this project's environment. HOME is the user's, so that pip finds its configuration.
if [ "$1" = install ] && [ -n "$SATCHEL_DEMO_WHEELS" ] && [ -d "$SATCHEL_DEMO_WHEELS" ]; then
    shift
    set -- install --no-index --find-links "$SATCHEL_DEMO_WHEELS" "$@"
fi
HOME={home} exec {outer} -P -m pip --python {inner} "$@"
"""


def build_flask_project(folder: str | Path) -> Path:
    """Writes the project and its virtual environment (`.venv`) into `folder`, which must be absent or empty.

    The environment's interpreter is the base of the running one, and has neither flask nor requests. Its `pip` is a
    shim around the outer pip (22.3 or newer), because a pip of its own would take seconds to make. `pip install`
    takes wheels from the folder `SATCHEL_DEMO_WHEELS`, if that is set and there, and asks no index then; else it
    uses the index that the user has configured. One line is missing in requirements.txt; nothing else is broken.
    """
    root = Path(folder).resolve()
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise FileExistsError(f"{str(folder)!r} is not empty; give a new folder")
    for name, content in (
        ("README.md", README),
        ("app.py", APP),
        ("requirements.txt", REQUIREMENTS),
        ("test_app.py", TESTS),
    ):
        (root / name).write_text(content, encoding="utf-8")
    environment = root / ".venv"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
    shim = PIP.format(
        home=shlex.quote(str(Path.home())),
        outer=shlex.quote(_python_with_pip()),
        inner=shlex.quote(str(environment / "bin" / "python3")),
    )
    for name in ("pip", "pip3"):
        path = environment / "bin" / name
        path.write_text(shim, encoding="utf-8")
        path.chmod(0o755)
    return root


def _python_with_pip() -> str:
    """This interpreter, or its base when it stands in an environment without pip."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    return str(getattr(sys, "_base_executable", sys.executable))
