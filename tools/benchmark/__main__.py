"""Starts the benchmark."""

import sys

from tools.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
