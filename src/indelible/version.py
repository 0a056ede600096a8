"""This release's number.

Owns: `__version__`. Must never: import anything. Invariant: equal to the one in pyproject.toml.
"""

__version__ = "0.1.0"
