"""What is shipped for tests: proofs, the fake world, the simulated one, and the suite for stores.

Owns: the name `crash_everywhere`, which is looked up when it is used first: a proof needs a good part of the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indelible.testing.prove import crash_everywhere

__all__ = ["crash_everywhere"]


def __getattr__(name: str) -> Any:
    if name == "crash_everywhere":
        from indelible.testing import prove

        return prove.crash_everywhere
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
