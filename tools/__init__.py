"""Programs beside the library: each parses, calls and prints."""

from keras_vit_cli import command

# Before any module of a tool imports TensorFlow.
command.quiet_tensorflow()
