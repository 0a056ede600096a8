"""`python -m indelible`: the command line, without an installed script.

Owns: nothing. Must never: do anything when it is only imported.
"""

from indelible.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
