"""Programs that train, fine-tune and predict with keras_vit."""

import signal
import sys

from keras_vit_cli import command

# Before any module of a recipe imports Keras.
command.prepare(needed=("fcntl", "absl", "ml_collections"))
if sys.argv[:1] == ["-m"]:
    # `python -m recipes.finetune` begins with imports that take seconds. During
    # these, Ctrl-C ends the process: Python's KeyboardInterrupt is lost if it
    # is raised in a callback of JAX.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from recipes import start

    start.announce(
        sys.argv[1:], sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    )
