"""Masked autoencoders (He et al. 2021, 2111.06377), of recipes.unlabelled."""

import dataclasses

import keras
import numpy as np

from keras_vit import distribution, heads, training
from keras_vit._paths import save_whole
from keras_vit.inspection import task_figures
from recipes import inputs, method, training_step

# Images in reconstructions.png.
NUM_SHOWN = 6


@dataclasses.dataclass(kw_only=True, slots=True)
class Mae:
    """The decoder, and what it predicts.

    Attributes:
        mask_ratio: Share of the patches that the encoder does not see.
        target: "patch" (the pixels of a patch normalised by their mean and
            variance), "channel" (of each channel; VideoMAE) or "pixels".
        decoder_num_layers, decoder_hidden_size, decoder_num_heads,
            decoder_mlp_dim: Of the decoder's blocks.
    """

    mask_ratio: float = 0.75
    target: str = "patch"
    decoder_num_layers: int = 8
    decoder_hidden_size: int = 512
    decoder_num_heads: int = 16
    decoder_mlp_dim: int = 2048


def objective(config, info) -> training_step.Objective:
    """Return the masked autoencoder of a config, and its loss."""

    def predictor(model):
        whole = heads.mae(
            model,
            **dataclasses.asdict(config.mae),
            # Those of trained weights stay.
            fixed_positions=not config.model.weights,
        )
        shapes = {name: x.shape[1:] for name, x in whole.input.items()}
        # A number that the compiler knows.
        shapes["visible"] = (whole.num_visible,)
        given = {
            name: keras.Input(shape, name=name, dtype=whole.input[name].dtype)
            for name, shape in shapes.items()
        }
        return keras.Model(given, whole(given)["loss"], name=model.name)

    return training_step.Objective(
        predictor=predictor,
        loss=training.OutputLoss(),
        include_top=False,
        best_by="loss",
    )


def batches(config, images, built) -> method.Batches:
    """Return images with the patches that are visible."""
    return method.wrapped(
        config,
        images,
        training.masked_images.batches,
        grid_size=built.model.metadata["grid"],
        num_visible=autoencoder(built.trainer).num_visible,
        seed=config.seed,
    )


def describe(config, built) -> str:
    """Return how many patches are visible."""
    whole = autoencoder(built.trainer)
    return (
        f"and a decoder, {whole.num_visible} of {whole.num_patches} patches "
        "visible"
    )


def autoencoder(trainer: keras.Model) -> heads.MaskedModel:
    """Return the masked autoencoder that a trained model has as a layer."""
    (found,) = (x for x in trainer.layers if isinstance(x, heads.MaskedModel))
    return found


class Reconstruction(keras.callbacks.Callback):
    """Saves the decoder too after the last step, and draws what it predicts.

    Args:
        whole: The masked autoencoder.
        pixels: Images, or videos, to draw.
        total_steps: Number of steps.
        devices: Of the run.
        workdir: Receives autoencoder.keras and reconstructions.png.
    """

    def __init__(
        self, whole, pixels: np.ndarray, total_steps, devices, workdir
    ):
        super().__init__()
        self.whole = whole
        self.pixels = pixels
        self.total_steps = total_steps
        self.devices = devices
        self.workdir = workdir

    def on_epoch_end(self, epoch, logs=None):
        if logs["step"] < self.total_steps:
            return
        # Every process takes part: each may hold a shard of the variables.
        whole = distribution.gather(self.whole, self.devices)
        if not self.devices.is_main:
            return
        save_whole(whole, self.workdir / "autoencoder.keras")
        with keras.device("cpu"):
            copy = keras.models.load_model(self.workdir / "autoencoder.keras")
        given = copy.inputs_of(self.pixels)
        outputs = {
            name: keras.ops.convert_to_numpy(x)
            for name, x in copy(given).items()
        }
        task_figures.plot_masked(
            self.pixels,
            copy.reconstruct(given, outputs),
            outputs["mask"],
            copy.patch_size,
            self.workdir / "reconstructions.png",
        )


def callbacks(config, images, built, devices, workdir) -> tuple:
    """Return the callback that draws reconstructions."""
    _, evaluation = inputs.pipelines(
        config, images.info, images.train, images.evaluation
    )
    pixels = next(evaluation().as_numpy_iterator())["images"][:NUM_SHOWN]
    return (
        Reconstruction(
            autoencoder(built.trainer),
            pixels.astype("float32"),
            built.total_steps,
            devices,
            workdir,
        ),
    )


METHOD = method.Method(
    objective=objective,
    batches=batches,
    describe=describe,
    callbacks=callbacks,
)
