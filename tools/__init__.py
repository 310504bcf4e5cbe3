"""Programs that accompany the library: each parses arguments, calls, prints."""

import sys

from keras_vit_cli import command

# Each process of the tests has a backend of its own.
if "tools.test_backends" not in sys.orig_argv:
    command.prepare()
