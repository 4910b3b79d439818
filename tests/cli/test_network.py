"""Commands on models that are here use no network: not behind a proxy that refuses, and not where there is none.

Each is watched twice: Python's own calls through an audit hook and a proxy that nobody may ask, and all calls, those of
native code too, through the counters of a network namespace in which every attempt fails.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

from model_places import make_places, put_in_hub
from wheel_index import entry_text

REPO, NAME = "maker/Tiny-GGUF", "hf:maker/Tiny-GGUF:Q8_0"
COMMANDS = {  # what is run, and words of its answer; a new command that takes a model is a row
    "ls": (("ls",), NAME),
    "show": (("show", NAME), "llama"),
    "show, by a name of the catalogue": (("show", "mine"), "llama"),
    "run": (("run", "-m", NAME, "--threads", "1", "--raw", "-n", "3", "hello"), ""),
    "run, with the catalogue's draft": (("run", "-m", "mine", "--threads", "1", "--raw", "-n", "3", "hello"), ""),
    "chat": (("chat", "--plain", "-m", NAME, "--threads", "1", "-n", "3"), ""),
    "pair": (("pair", NAME), "draft"),
    "doctor": (("doctor",), "ready: "),
    "pull, of what is here": (("pull", NAME), "Tiny-Q8_0.gguf"),
}
GUARD = """
import os, sys
def _hook(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        if event in ("socket.connect", "socket.bind") and isinstance(arguments[1], (str, bytes)):
            return  # a path: the socket of a process of this machine
        with open(os.environ["SOCKET_LOG"], "a") as file:
            print(event, arguments, file=file)
        raise ConnectionRefusedError("a connection, from " + " ".join(sys.argv))
sys.addaudithook(_hook)
"""
# Counts of this namespace: connections begun, packets sent, and addresses that nothing leads to.
COUNTERS = re.compile(r"^(?:Tcp|Udp|Ip)6?(?:ActiveOpens|OutDatagrams|OutRequests|OutNoRoutes)$")
IN_NAMESPACE = ["unshare", "--map-root-user", "--net", "sh", "-c"]
THEN_COUNT = '"$@"; code=$?; cat /proc/net/snmp /proc/net/snmp6 > "$COUNTS"; exit $code'
ATTEMPT = [sys.executable, "-c", "import socket; socket.socket(socket.AF_INET).connect(('192.0.2.1', 9))"]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, probed: bytes, models: Models) -> Cli:
    """Someone with a model and a draft out of the Hub, who has used them: what is measured once is measured."""
    root = tmp_path_factory.mktemp("network")
    places = make_places(root)
    put_in_hub(places, REPO, {"Tiny-Q8_0.gguf": models.chat.read_bytes()})
    for name, model in (("mine", models.chat), ("small", models.draft)):
        shutil.copy(model, places.own / f"{name}.gguf")
    home = places.own.parent
    texts = [
        entry_text(name, path.read_bytes(), [], hub=f"maker/{name}", family="'tiny'", **more)
        for name, path, more in (("mine", models.chat, {"draft": "'small'"}), ("small", models.draft, {}))
    ]
    (home / "catalog.toml").write_text("".join(texts))
    (home / "cache").mkdir()
    (home / "cache" / "probe.json").write_bytes(probed)
    guard = root / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    left_out = re.compile("EDGESPEC_|HF_|.*proxy", re.IGNORECASE)
    theirs = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    watched = {"PYTHONPATH": str(guard), "EDGESPEC_MODEL": "mine", "PYTHONIOENCODING": "utf-8"}
    return Cli({**theirs, **places.env, **watched})


@contextmanager
def refusing_proxy() -> Iterator[tuple[str, list[object]]]:
    """(address, list of who asked): it closes every connection."""
    asked: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, who = server.accept()
                except OSError:
                    return
                asked.append(who)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def works(done: Result, words: str) -> None:
    assert done.code == 0, done.err
    assert done.out
    assert words in done.out


@pytest.fixture(scope="module")
def proxied(person: Cli) -> Iterator[tuple[Cli, list[object]]]:
    with refusing_proxy() as (address, asked):
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        everyone = {name: address for upper in names for name in (upper, upper.lower())}
        yield Cli({**person.env, **everyone}), asked


@pytest.mark.parametrize("command", COMMANDS)
def test_no_connection_is_opened_and_no_proxy_asked(proxied, tmp_path: Path, command: str) -> None:
    behind, asked = proxied
    arguments, words = COMMANDS[command]
    log = tmp_path / "sockets"
    if command == "doctor":  # its children are watched as well: they inherit the hook
        (Path(behind.env["EDGESPEC_HOME"]) / "cache" / "probe.json").unlink()
    works(Cli({**behind.env, "SOCKET_LOG": str(log)}).run([*EDGESPEC, *arguments], stdin=b"hello"), words)
    assert not log.exists(), log.read_text()
    assert not asked


def test_the_hook_and_the_proxy_do_see_a_connection(proxied, tmp_path: Path) -> None:
    behind, asked = proxied
    log = tmp_path / "sockets"
    watched = {**behind.env, "SOCKET_LOG": str(log)}
    assert Cli(watched).run(ATTEMPT).code == 1
    assert "socket.connect" in log.read_text()
    del watched["PYTHONPATH"]
    fetch = "import urllib.request as u; u.urlopen('http://192.0.2.1/')"
    assert Cli(watched).run([sys.executable, "-c", fetch]).code == 1
    assert asked
    asked.clear()


def counts(file: Path) -> dict[str, int]:
    """Counters that are not 0: of version 4 a line of names above a line of numbers, of version 6 one a line."""
    rows = [line.split() for line in file.read_text().splitlines()]
    found: dict[str, int] = {}
    for names, numbers in pairwise(rows):
        if names[0] == numbers[0] and names[0].endswith(":"):
            found |= {names[0][:-1] + n: int(v) for n, v in zip(names[1:], numbers[1:], strict=True)}
    found |= {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return {name: value for name, value in found.items() if COUNTERS.match(name) and value}


@pytest.fixture(scope="module")
def cut(person: Cli) -> Cli:
    """The command where there is no network at all."""
    try:
        tried = subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, text=True, timeout=10, check=False)
        why = tried.stderr.strip()
    except OSError as error:
        why = str(error)
    if why:
        pytest.skip(f"a network namespace cannot be made here: {why}")
    return person


def without_network(cut: Cli, tmp_path: Path, command: list[str]) -> tuple[Result, dict[str, int]]:
    file = tmp_path / "counts"
    env = {**cut.env, "COUNTS": str(file), "SOCKET_LOG": str(tmp_path / "sockets")}
    done = Cli(env).run([*IN_NAMESPACE, THEN_COUNT, "sh", *command], stdin=b"hello")
    return done, counts(file)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_network_it_works_and_tries_none(cut: Cli, tmp_path: Path, command: str) -> None:
    arguments, words = COMMANDS[command]
    done, tried = without_network(cut, tmp_path, [*EDGESPEC, *arguments])
    works(done, words)
    assert tried == {}


def test_the_counters_do_see_an_attempt(cut: Cli, tmp_path: Path) -> None:
    done, tried = without_network(Cli({**cut.env, "PYTHONPATH": ""}), tmp_path, ATTEMPT)
    assert done.code == 1
    assert tried, "the kernel does not count attempts"
