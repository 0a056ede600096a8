"""A stage for tests of the command line: a folder with an agent file, and ways to run commands in it.

Owns: the agent that the tests run, whose objective is the list of its tasks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from indelible.cli.main import main

AGENT = '''
import os, signal
import indelible as ind


def point(name):
    """A place to die or to be told to stop at, as the environment says."""
    if os.environ.get("DIE_AT") == name:
        os._exit(9)
    for _ in range(int(os.environ.get("SIGNALS", "1")) if os.environ.get("SIGNAL_AT") == name else 0):
        os.kill(os.getpid(), getattr(signal, os.environ.get("SIGNAL", "SIGTERM")))


class Job(ind.State):
    tasks: ind.Queue[str]
    notes: ind.Log[str]
    seen: ind.Map[str, int]
    n: int = 0


@ind.action
def complete(prompt: str) -> str:
    ind.usage(usd=0.01, tokens_in=3, tokens_out=5)
    point("call")
    return f"about {prompt}"


@ind.action(effect="irreversible")
def send(to: str, body: str, *, key: str) -> str:
    point("before")
    with open("outbox.txt", "a") as out:
        print(to, file=out)
    point("after")
    return "sent"


@ind.action(effect="irreversible", approve=True)
def pay(euros: int) -> str:
    return "paid"


@ind.agent(state=Job, attempts=2, backoff_s=0)
def worker(run):
    task = run.state.tasks.take()
    if task == "ask":
        note = run.ask("Which supplier?")
    elif task == "send":
        note = send("ann@example.org", "two \\x1b[31mlines")
    elif task == "pay":
        note = pay(5)
    elif task == "fail":
        raise ValueError("[bold]no\\x1b[2J luck")
    elif task == "leave":
        raise SystemExit("out of here")
    elif task == "socket":
        run.state.seen[task] = object()
    elif task == "alarm":
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        run.sleep(3600)
        note = "slept"
    elif task == "nap":
        run.sleep(3600)
        note = "slept"
    else:
        note = complete(task)
    run.state.notes.append(note)
    run.state.n += 1
    point("commit")
    if not run.state.tasks:
        run.finish(f"{run.state.n} done")


@worker.start
def start(run):
    point("start")
    run.state.tasks.extend(run.objective.split())


other = ind.agent(state=Job, name="another")(lambda run: run.finish())
number = 7
'''

ASYNC_AGENT = """
import indelible as ind


class Job(ind.State):
    n: int = 0


@ind.agent(state=Job)
async def later(run):
    import os, signal
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    run.sleep(3600)
"""


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Stage:
    """A folder with `agent.py` in it, which is also the current directory."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Result:
        """Run a command in this process."""
        self.capsys.readouterr()
        code = main(list(words))
        out, err = self.capsys.readouterr()
        return Result(code, out, err)

    def apart(self, *words: str, **env: str) -> Result:
        """Run a command in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "indelible", *words],
            cwd=self.folder,
            env={**os.environ, **env},
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    def copy(self, name: str) -> str:
        """A copy of the store as it lies there, with its log; the path of the copy."""
        for path in self.folder.glob("agent.db*"):
            shutil.copy(path, self.folder / path.name.replace("agent.db", name))
        return name


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    """A fresh stage."""
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "later.py").write_text(ASYNC_AGENT, encoding="utf-8")
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("INDELIBLE_STORE", raising=False)
    yield Stage(tmp_path, capsys)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
