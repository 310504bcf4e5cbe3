"""A model that holds its metadata."""

import contextlib
import dataclasses
import functools
import inspect

import keras
from keras import ops

from keras_vit import layers
from keras_vit._keras import check_clipping, nested_layers
from keras_vit._loss_check import check_losses
from keras_vit.layers.base import check_shape
from keras_vit.models.families import FAMILIES
from keras_vit.ops import graph
from keras_vit.weights import rules


class QuantizableModel(graph.Model):
    """A functional model that is quantised without warnings."""

    def quantize(  # type: ignore[override]
        self, mode=None, config=None, filters=None, **kwargs
    ):
        """Quantises all layers that can be, like `keras.Model.quantize`.

        Without `filters`, layers that cannot be quantised (the patch embedding,
        norms, position embeddings) stay in floating point without a warning.
        """
        filters = layers.quantizable if filters is None else filters
        super().quantize(mode, config=config, filters=filters, **kwargs)


@keras.saving.register_keras_serializable(package="keras_vit")
class ImageModel(QuantizableModel):
    """A functional model of images that holds its own metadata.

    It is saved, loaded, cloned and sliced like any functional `keras.Model`.
    Its layer `metadata` holds the metadata.

    On every backend dropout and stochastic depth follow the argument `training`
    of a call, False by default. Under PyTorch `train()` and `eval()` do not
    change that.
    """

    @classmethod
    def find(cls, model: keras.Model, argument: str = "model") -> "ImageModel":
        """Return the one model of this package that a model is or contains.

        Args:
            model: A model of this package; a model that has one as a layer, at
                any depth; or a model that was built on its tensors, such as
                `keras.Model(backbone.input, head(backbone.output))`.
            argument: Name of `model` in error messages.

        Returns:
            The model. If `model` was built on its tensors, a model that shares
            its layers, with the head if that is the output.

        Raises:
            ValueError: If there is no such model, or more than one.
        """
        if isinstance(model, cls):
            return model
        is_layer = isinstance(model, keras.layers.Layer)
        inner = nested_layers(model) if is_layer else ()
        found = [layer for layer in inner if isinstance(layer, cls)]
        if len(found) == 1:
            return found[0]
        flat = getattr(model, "layers", ()) if not found else ()
        marks = [layer for layer in flat if isinstance(layer, layers.Metadata)]
        if len(marks) == 1:
            if all(len(x.shape) < 4 for x in model.inputs):
                raise ValueError(
                    f"`{argument}` must take images, [B, H, W, C], or videos. "
                    f"Received: {model.name!r}, which takes shapes "
                    f"{[x.shape for x in model.inputs]}. A SigLIP 2 for images "
                    "of any shape is opened for one of them by "
                    "keras_vit.from_pretrained(..., input_shape=(256, 256, 3))"
                )
            heads = [layer for layer in flat if layer.name == "head"]
            has_head = heads and heads[0].output is model.output
            end = model.output if has_head else marks[0].output
            return cls(model.input, end, name=model.name)
        names = ", ".join(repr(layer.name) for layer in found)
        raise ValueError(
            f"`{argument}` must be a model of keras_vit, or contain one. "
            f"Received: {getattr(model, 'name', model)!r}, which contains "
            + (
                f"{len(found)}: {names}. Pass one of them."
                if found
                else "none. Open a file that was written before models "
                "held their metadata with keras_vit.ViT(weights=path)."
            )
        )

    def __call__(self, inputs, *args, **kwargs):
        """Call the model on images of its shape; see `keras.Model.__call__`.

        Keras accepts some of another rank, or another number of channels.
        """

        def check(x):
            if not hasattr(x, "shape"):
                return x
            return check_shape(self, x, self.inputs[0].shape[1:])

        if len(self.inputs) == 1:
            if hasattr(inputs, "shape"):
                inputs = check(inputs)
            else:
                inputs = keras.tree.map_structure(check, inputs)
        return super().__call__(inputs, *args, **kwargs)

    @contextlib.contextmanager
    def watched(self, layer: keras.layers.Layer | None = None):
        """Yield a list that collects (inputs, outputs) of each call.

        It shows what reaches this model within a model that contains it.

        Args:
            layer: A layer of this model to watch in its place.
        """
        layer = self if layer is None else layer
        seen, call = [], layer.call

        def watch(inputs, *args, **kwargs):
            outputs = call(inputs, *args, **kwargs)
            seen.append((inputs, outputs))
            return outputs

        layer.call = watch  # type: ignore[method-assign]
        try:
            yield seen
        finally:
            del layer.call

    @property
    def family(self) -> str:
        """Name of its family, such as "vit"."""
        return self._metadata.family

    @property
    def file_family(self) -> str:
        """Name of the rules of its files, a key of `weights.rules.FAMILIES`."""
        return self.family

    @property
    def architecture(self):
        """Its architecture: the dataclass of the family."""
        fields = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self._metadata.architecture.items()
        }
        return self._family.config(**fields)

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """The family's repeated layers, from the input on."""
        return [x for x in self.layers if isinstance(x, self._family.block)]

    @property
    def head(self) -> layers.ClassificationHead | layers.DistilledHead | None:
        """The classifier, or None without one."""
        heads = (layers.DistilledHead, keras.layers.Dense)
        for layer in self.layers:
            if layer.name == "head" and isinstance(layer, heads):
                return layer
        return None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of its classes by index, or None."""
        return getattr(self.head, "class_names", None)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of its images, or of a video's frames."""
        return self.input_shape[-3:]

    @property
    def num_frames(self) -> int | None:
        """Frames of its videos; None where it takes images."""
        return self.input_shape[1] if len(self.input_shape) == 5 else None

    @property
    def includes_preprocessing(self) -> bool:
        """Whether it takes pixels in [0, 255] and scales them itself."""
        return any(layer.name == "preprocessing" for layer in self.layers)

    @property
    def pixel_mean(self):
        """The mean subtracted from pixels; None if unknown."""
        return self._metadata.pixel_mean

    @property
    def pixel_std(self):
        """The divisor of pixels; None if unknown."""
        return self._metadata.pixel_std

    @property
    def provenance(self) -> str | None:
        """Where its first weights came from; None for random ones."""
        return self._metadata.provenance

    @property
    def resampling(self) -> str | None:
        """How the library of its weights resamples them to another resolution.

        Its file is opened at another `input_shape` in the same way:
        "aligned_bilinear", "bilinear", "bicubic", "antialiased_bicubic" or
        "geometric"; None for the way of its family.
        """
        return self._metadata.resampling

    @property
    def metadata(self) -> dict:
        """All of these, as the metadata of a checkpoint (`weights.rules`)."""
        names = [layer.name for layer in self.layers]
        metadata = dataclasses.asdict(self.architecture) | dict(
            classes=self.head and self.head.units,
            class_names=self.class_names,
            similarity_head=getattr(self.head, "projection_size", None),
            representation_size=(
                self.get_layer("pre_logits").units
                if "pre_logits" in names
                else None
            ),
            image_size=self.image_shape[:2],
            channels=self.image_shape[2],
            num_frames=self.num_frames,
            pixel_mean=self.pixel_mean,
            pixel_std=self.pixel_std,
            resampling=self.resampling,
        )
        metadata["grid"] = rules.FAMILIES[self.family].grid(metadata)
        return metadata

    @property
    def representation(self):
        """The symbolic output of the family's `forward`, `[B, D]`."""
        return vector(self._metadata.output)

    @functools.wraps(keras.Model.compile)
    def compile(self, *args, **kwargs):
        signature = inspect.signature(keras.Model.compile)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if given["auto_scale_loss"]:
            given["optimizer"] = self._scaled(given["optimizer"])
        super().compile(*bound.args[1:], **bound.kwargs)
        check_clipping(self, stacklevel=2)
        keys = ("loss", "metrics", "weighted_metrics")
        check_losses(self, *map(given.get, keys), stacklevel=2)

    def compile_from_config(self, config):
        """Compiles a loaded model; see `keras.Model.compile_from_config`."""
        # Keras' own does nothing where a class has its own `compile`.
        super().compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):  # type: ignore[override]
        if self.compiled and self.optimizer is None:
            raise ValueError(
                "`model` must be compiled with an optimizer to be trained. "
                f"Received: {self.name!r}, which has a loss alone, to state "
                "what its scores are. Call `model.compile` first."
            )
        return super().fit(*args, **kwargs)

    def train_step(self, *args, **kwargs):
        """Trains on a batch; see `keras.Model.train_step`."""
        if keras.backend.backend() == "torch":
            # Keras drops the last step's gradients only after the forward pass,
            # and has them in memory beside all activations.
            self.zero_grad()
        return super().train_step(*args, **kwargs)

    def _scaled(self, optimizer):
        """Return an optimizer that scales the loss for layers in float16.

        Keras looks at the global policy alone, also where a file is loaded.
        """
        policies = {layer.dtype_policy.name for layer in self.layers}
        if "mixed_float16" not in policies or optimizer is None:
            return optimizer
        optimizer = keras.optimizers.get(optimizer)
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return optimizer
        return keras.optimizers.LossScaleOptimizer(
            optimizer, name="loss_scale_optimizer"
        )

    @property
    def _metadata(self):
        for layer in self.layers:
            if isinstance(layer, layers.Metadata):
                return layer
        raise ValueError(
            f"`{self.name}` must have a layer `metadata`, as models of "
            "keras_vit's constructors have. Received one without"
        )

    @property
    def _family(self):
        return FAMILIES[self.family]


def vector(x):
    """Return the mean of a class and a distillation token, as timm does.

    Args:
        x: The output of a family's `forward`, `[B, D]` or `[B, 2, D]`.
    """
    return ops.mean(x, axis=1) if len(x.shape) == 3 else x
