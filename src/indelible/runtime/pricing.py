"""What an answer of a model service costs, by the public price list.

Owns: the one place that asks `genai-prices` (extra `prices`) for a price.
Must never: take an unknown price for zero, or a price of one service for that of another; import the list before it
is needed.
Invariant: the answer is a finite number of US dollars from 0 up, or None.
"""

from __future__ import annotations

import math
from typing import Any

from indelible.core.usage import Answer

_STANDARD = ("", "auto", "default", "standard")


def price_of(answer: Answer, provider: str = "") -> float | None:
    """Dollars, or None if the price is not known.

    `provider` is a name in the price list, such as `groq`, or the URL that was asked; a service that is not in the
    list has no price here, whatever its model is called. Without one it is the maker of the answer's shape.
    """
    if not answer.model or not answer.tokens_in + answer.tokens_out or not (provider or answer.maker):
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    where = {"provider_api_url": provider} if "://" in provider else {"provider_id": provider or answer.maker}

    def price(**context: Any) -> float:
        found: Any = genai_prices.calc_price  # its overloads know no dict of options
        return float(found(usage, answer.model, **where, **context).total_price)

    try:
        usage = genai_prices.Usage(input_tokens=answer.tokens_in, output_tokens=answer.tokens_out, **dict(answer.parts))
        usd = price()
        if answer.tier not in _STANDARD:
            tier = {"processing": "batch"} if answer.tier == "batch" else {"service_tier": answer.tier}
            standard, usd = usd, price(price_context=tier)
            if usd == standard:  # that is what the list answers for a tier it does not know
                return None
    except (LookupError, ValueError, TypeError):
        return None
    return usd if math.isfinite(usd) and usd >= 0 else None
