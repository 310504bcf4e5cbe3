"""The command `keras-vit`: what needs no checkout, only the package.

It is a package beside keras_vit, which imports Keras and its backend as soon
as it is imported: so `--help` and mistakes of the command line are answered at
once.
"""

import importlib

from keras_vit_cli import arguments, command


@command.entry
def main(words: list[str]) -> int:
    """Runs a command.

    Args:
        words: What follows the program's name; by default sys.argv's.

    Returns:
        The exit status; 0 is success, 2 an error that the user caused.
    """
    options = arguments.parser().parse_args(words)
    command.quiet_tensorflow()
    return importlib.import_module(options.module).run(options)
