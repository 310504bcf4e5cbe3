"""Starts the TPU planner."""

import sys

from tools.plan_tpu import main

if __name__ == "__main__":
    sys.exit(main())
