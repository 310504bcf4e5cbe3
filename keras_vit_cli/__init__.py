"""The command `keras-vit`, which is installed with the package.

It is a separate package, since importing keras_vit imports Keras and its
backend: `--help` and errors in the command line are shown at once.
"""

import importlib

from keras_vit_cli import arguments, command


@command.entry
def main(words: list[str]) -> int:
    """Run a command; return 0 for success, 2 for a user error."""
    options = arguments.parser().parse_args(words)
    if options.program != "classify":  # which asks a server
        command.choose_backend()
    return importlib.import_module(options.module).run(options)
