"""Programs that accompany the library: each parses arguments, calls, prints."""

from keras_vit_cli import command

# Before any module of a tool imports TensorFlow.
command.quiet_tensorflow()
