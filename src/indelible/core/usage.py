"""What a call used, as the answer of a model service tells it.

Owns: the shapes of answers that are read, and the sum of what one call reports.
Must never: know a price; take the total of a session or a stream for the use of one answer.
Invariant: an answer counts in one call only, the one that got it, however many actions hand it on; of several reports
of one answer the last one counts.

Read are `usage` and `model` of an object or a dict, in the shapes of OpenAI's chat completions (`prompt_tokens`,
`completion_tokens`), OpenAI's responses (`input_tokens`, with the cached ones among them) and Anthropic's messages
(`input_tokens`, with the cached ones beside them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from indelible.errors import Misuse

if TYPE_CHECKING:
    from indelible.core.cycle import Scope

MOST_TOKENS = 10**15
"""In one report; so that no sum is too large to be written down."""
_SIMPLE = frozenset({str, bytes, int, float, bool, type(None), list, tuple})
_NUMBERS_HINT = 'usage(tokens_in=120, tokens_out=40, usd=0.0004, model="gpt-4.1-mini")'


class Answer(NamedTuple):
    """What the answer of a model service says of itself. All input is in `tokens_in`, also what came from a cache."""

    model: str
    tokens_in: int = 0
    tokens_out: int = 0
    maker: str = ""
    """Whose shape it has: `openai` or `anthropic`."""
    id: str = ""
    tier: str = ""
    parts: tuple[tuple[str, int], ...] = ()
    """Those of its tokens, and other things, that have a price of their own, under the names of the price list."""


def answer_of(value: object) -> Answer | None:
    """What an answer says of itself; None if it has no usage of a known shape.

    Raises `Misuse` for a number of tokens that cannot be.
    """
    usage, model = _part(value, "usage"), _text(value, "model")
    if (said := _part(usage, "prompt_tokens")) is not None:
        parts = {**_cached(usage, "prompt_tokens_details"),
                 "input_audio_tokens": _part(_part(usage, "prompt_tokens_details"), "audio_tokens"),
                 "output_audio_tokens": _part(_part(usage, "completion_tokens_details"), "audio_tokens")}  # fmt: skip
        counts, out, maker = [said], _part(usage, "completion_tokens"), "openai"
    elif (said := _part(usage, "input_tokens")) is not None:
        written, read = _part(usage, "cache_creation_input_tokens"), _part(usage, "cache_read_input_tokens")
        out = _part(usage, "output_tokens")
        messages = written is not None or read is not None or _text(value, "type") == "message"
        if messages or model.startswith("claude"):
            parts = {"cache_read_tokens": read, "cache_write_tokens": written,
                     "cache_write_1h_tokens": _part(_part(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
                     "web_searches": _part(_part(usage, "server_tool_use"), "web_search_requests")}  # fmt: skip
            counts, maker = [said, written, read], "anthropic"
        else:
            parts, counts, maker = _cached(usage, "input_tokens_details"), [said], "openai"
    else:
        return None
    numbers = [(name, whole(number, name)) for name, number in parts.items()]
    tier = _text(value, "service_tier") or _text(usage, "service_tier")
    return Answer(model, sum(whole(count, "tokens_in") for count in counts), whole(out, "tokens_out"), maker,
                  _text(value, "id"), tier, tuple(pair for pair in numbers if pair[1]))  # fmt: skip


def _cached(usage: object, name: str) -> dict[str, Any]:
    details = _part(usage, name)
    return {
        "cache_read_tokens": _part(details, "cached_tokens"),
        "cache_write_tokens": _part(details, "cache_write_tokens"),
    }


def _part(value: object, name: str) -> Any:
    if value is None:
        return None
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text(value: object, name: str) -> str:
    found = _part(value, name)
    return found.encode("utf-8", "replace").decode() if isinstance(found, str) else ""


def whole(number: object, name: str) -> int:
    """That number of tokens; none are 0. Raises `Misuse` for anything but a whole number from 0 to `MOST_TOKENS`."""
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, Integral) or not 0 <= int(number) <= MOST_TOKENS:
        shown = str(number)[:20] if isinstance(number, int | float) else f"a {type(number).__name__}"
        expected = f"expected a whole number from 0 up to {MOST_TOKENS:,}"
        raise Misuse(f"usage: {name} is {shown}; {expected}", hint=_NUMBERS_HINT)
    return int(number)


def report(scope: Scope, answer: Answer, usd: float | None) -> None:
    """Note what the call that the scope stands for has used; `usd` None if the price is not known."""
    reports = scope.reports = scope.reports or {}
    reports[answer.id or len(reports)] = answer, usd
    known = [price for _, price in reports.values() if price is not None]
    scope.usage = {
        "tokens_in": sum(answer.tokens_in for answer, _ in reports.values()),
        "tokens_out": sum(answer.tokens_out for answer, _ in reports.values()),
        "usd": sum(known) if len(known) == len(reports) else None,
        "model": next((answer.model for answer, _ in reversed(reports.values()) if answer.model), ""),
    }


def used(scope: Scope, value: object, given: Iterable[object] = ()) -> dict[str, Any] | None:
    """What the call that the scope stands for has used, read from the answer it returned if it said nothing itself.

    An answer that it was `given` as an argument was there before it.
    """
    answer = _found_in(value)
    if answer is not None:
        if scope.usage is None and answer not in scope.heard and all(_found_in(part) != answer for part in given):
            report(scope, answer, scope.entry.live.price(answer, ""))
        hear(scope.parent, answer)
    return scope.usage


def passed(scope: Scope, value: object) -> None:
    """Note that an action called in that scope gave an answer which was counted when it came."""
    if scope.call and (answer := _found_in(value)) is not None:
        hear(scope, answer)


def hear(scope: Scope | None, answer: Answer) -> None:
    """Note that the answer is counted, so that the action that hands it on is not thought to have got it."""
    if scope is not None and scope.call:
        scope.heard = (*scope.heard, answer)


def _found_in(value: object) -> Answer | None:
    """The answer that a result is; its numbers are not known if they cannot be. Never raises: it has been paid for."""
    if type(value) in _SIMPLE:
        return None
    try:
        if not (model := _text(value, "model")):
            return None
        try:
            return answer_of(value)
        except Misuse:
            return Answer(model, id=_text(value, "id"))
    except Exception:
        return None  # an object that cannot even be asked
