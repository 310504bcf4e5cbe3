"""Programs that train, fine-tune and evaluate with keras_vit.

In a program of your own, import `keras_vit` before a module of this package: it
chooses an installed backend where KERAS_BACKEND does not.
"""
