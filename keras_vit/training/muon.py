"""Muon for networks with convolutions."""

import keras

from keras_vit._keras import MatrixOfKernel


@keras.saving.register_keras_serializable(package="keras_vit")
class ConvMuon(MatrixOfKernel, keras.optimizers.Muon):
    """Keras' Muon, which takes kernels of convolutions too.

    `keras.optimizers.Muon` orthogonalises the updates of matrices and leaves
    all else to AdamW. Here a kernel `[h, w, C, D]` of a convolution is a matrix
    of h w C rows and D columns, as in the original, unless it has one column
    (depthwise convolutions) or `exclude_layers` or `exclude_embeddings` name
    it. Arguments are those of `keras.optimizers.Muon`.

    Raises:
        NotImplementedError: If Keras' Muon lacks what this relies on.

    Example:
        model.compile(
            keras_vit.training.ConvMuon(0.005, exclude_layers=["head"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(images, labels)

    Reference:
        Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
        networks" (kellerjordan.github.io/posts/muon).
    """
