"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has Ctrl-C ignored, and whoever is started from here inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
