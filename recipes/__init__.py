"""Programs that train, fine-tune and predict with keras_vit."""

from recipes import command

# Before any module of a recipe imports TensorFlow.
command.quiet_tensorflow()
