"""`usage`: what an action says it has used.

Owns: the checks of what it is given.
Must never: record anything of a report that it refuses.
Invariant: an amount is in US dollars, or it is unknown.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from indelible.core.usage import Answer, answer_of, report, whole
from indelible.drive.context import current
from indelible.errors import Misuse
from indelible.runtime.pricing import price_of

_HINT = "usage(tokens_in=120, tokens_out=40, usd=0.0004)"


def usage(
    response: Any = None,
    /,
    *,
    tokens_in: int = 0,
    tokens_out: int = 0,
    usd: float | Decimal | None = None,
    model: str = "",
    provider: str = "",
    currency: str = "USD",
) -> None:
    """Report what the running action used; several reports of one call add up.

    `usage(response)` reads tokens and model from the answer of an OpenAI-style or Anthropic-style client, an object
    or a dict. Reports of one answer, told by its `id`, do not add up: the last one counts. An action that returns
    such an answer need not report it.

    `usd` None means that the price is not known. With `genai-prices` installed it is then looked up for a response,
    and for tokens if `model` and `provider` are given: a provider of that list, such as "groq", or the URL that was
    asked. What stays unknown is counted as unpriced, never as zero. Amounts in another `currency` are refused.

    Recorded with the action's completion or failure, or by itself if it has neither, as when it is cancelled or in
    doubt. Outside a run it does nothing. Raises `Misuse`, and then nothing of it is recorded.
    """
    amount = _dollars(usd, currency)
    if not isinstance(model, str) or not isinstance(provider, str):
        raise Misuse("usage: model and provider are names", hint='usage(response, provider="groq")')
    if response is not None:
        if tokens_in or tokens_out:
            raise Misuse("usage was given a response and numbers of tokens", hint="usage(response)")
        answer = _read(response)
    else:
        answer = Answer("", whole(tokens_in, "tokens_in"), whole(tokens_out, "tokens_out"))
    scope = current.get()
    if scope is None:
        return
    if not scope.call:
        raise Misuse("usage was reported outside an action", hint="call usage() in the function that calls the model")
    if model:
        answer = answer._replace(model=model.encode("utf-8", "replace").decode())
    if response is not None and answer in scope.heard:
        return  # an action called from here got it, and it is counted there
    report(scope, answer, price_of(answer, provider) if amount is None else amount)


def _dollars(usd: object, currency: object) -> float | None:
    if not isinstance(currency, str) or currency.upper() != "USD":
        shown = ascii(currency[:10]) if isinstance(currency, str) else type(currency).__name__
        raise Misuse(
            f"usage counts US dollars and converts nothing; the currency given is {shown}",
            hint="usage(usd=euros * 1.08)  # at a rate that you choose",
        )
    if usd is None:
        return None
    if isinstance(usd, bool) or not isinstance(usd, int | float | Decimal):
        raise Misuse(f"usage: usd is a {type(usd).__name__}; expected a number", hint=_HINT)
    try:
        amount = float(usd)
    except (ValueError, OverflowError):
        amount = math.nan
    if not math.isfinite(amount) or amount < 0:
        raise Misuse(f"usage: usd is {amount:g}; expected a finite number from 0 up", hint=_HINT)
    return amount


def _read(response: object) -> Answer:
    answer = answer_of(response)
    if answer is not None:
        return answer
    found = response.get("model") if isinstance(response, dict) else getattr(response, "model", None)
    if isinstance(found, str):
        return Answer(found)  # a server that reports no usage: its answer is counted, what it cost is not known
    raise Misuse(
        f"usage cannot be read from a {type(response).__name__}: it has no usage with prompt_tokens or input_tokens",
        hint="usage(tokens_in=…, tokens_out=…), or give the client's whole response",
    )
