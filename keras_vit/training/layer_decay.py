"""Layer-wise learning rates, which decrease from the head to the input."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, OptimizerClass, checked
from keras_vit._keras import ScaledRates, UpdateByRate
from keras_vit.models import ImageModel
from keras_vit.ops.adam import FusedAdam
from keras_vit.training.derived import Derived

Decay = Annotated[float, "above 0 and at most 1", lambda x: 0 < x <= 1]
Rise = Annotated[
    tuple[Natural, Count],
    "a number of steps without training and one, at least 1, of rising rates",
    len,
]


@dataclasses.dataclass(frozen=True)
class LateRise:
    """A share of the rate as a function of the steps done.

        share clip((step - start) / steps, 0, 1)

    Attributes:
        share: The last value.
        start: Number of steps with 0.
        steps: Number of steps of the rise.
    """

    share: float
    start: int
    steps: int

    def __call__(self, step):
        step = ops.cast(step, "float32")
        return self.share * ops.clip((step - self.start) / self.steps, 0.0, 1.0)


@keras.saving.register_keras_serializable(package="keras_vit")
@dataclasses.dataclass(eq=False)
class DepthFactor:
    """A function from a variable's path to its share of the learning rate.

    See `depth_factor`, which makes one for a model.

    Args:
        depths: Name of a layer -> its depth l; all other layers have depth L +
            1.
        num_layers: Number of blocks, L.
        decay: Share of the rate of the layer above.
        warmup: See `depth_factor`.
    """

    depths: dict[str, int]
    num_layers: int
    decay: float
    warmup: tuple[int, int] | None = None

    def __call__(self, path: str) -> float | LateRise:
        last = self.num_layers + 1
        for part in path.split("/")[:-1]:
            if part in self.depths:
                share = self.decay ** (last - self.depths[part])
                return LateRise(share, *self.warmup) if self.warmup else share
        return 1.0

    def get_config(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@checked
def depth_factor(
    model: keras.Model,
    decay: Decay,
    warmup: Rise | None = None,
) -> DepthFactor:
    """Return a function from a variable's path to its share of the rate.

        factor = decay^(L + 1 - l)

    with l = 0 for the layers before the blocks, l = i + 1 for block i of L and
    the layers between it and the next block, and l = L + 1 for every other
    layer: the last norm, the head, and your own layers.

    Args:
        model: A model of this package, or one that contains it.
        decay: Share of the rate of the layer above, such as 0.75.
        warmup: Number of steps in which the layers with l <= L are not trained,
            and of those in which their rates then rise linearly, such as (500,
            1000) (Kerssies et al. 2025, EoMT, 2503.19108); None without.

    Raises:
        ValueError: If `decay` is not above 0 and at most 1, the rise of
            `warmup` has no step, `model` contains no model of this package or
            several, or a layer of your own is named as one of it.

    Reference:
        Clark et al. 2020 (ELECTRA), section 3.1; for ViT, Bao et al. 2022
        (BEiT), appendix.
    """
    inner = ImageModel.find(model)
    blocks = inner.blocks
    depths, passed = {}, 0
    for layer in inner.layers:
        if layer in blocks:
            passed += 1
        elif passed == len(blocks):
            break
        depths[layer.name] = passed
    factor = DepthFactor(depths, len(blocks), decay, warmup)
    own = {id(variable) for variable in inner.variables}
    others = [v.path for v in model.trainable_variables if id(v) not in own]
    if same := [path for path in others if factor(path) != 1.0]:
        raise ValueError(
            f"Layers beside {inner.name!r} must not have the names of its own, "
            "by which variables have their rates. Received: the variables "
            f"{same[:3]}. Rename their layers."
        )
    return factor


@checked
def scale_rates(optimizer_class: OptimizerClass, factor: Callable) -> Callable:
    """Return an optimizer class with another learning rate per variable.

    Each variable has the steps and the weight decay that the optimizer would
    give it at `learning_rate` times its factor; clipping and averaging still
    cover all variables together. (A `keras.optimizers.MultiOptimizer` would
    clip and average each group separately, and has no learning rate to log.)

    A compiled model saves and loads such an optimizer like any other. Your own
    function, or an optimizer class that is not part of Keras, must be
    registered (`keras.saving.register_keras_serializable`) or wrapped here
    before loading.

    Args:
        optimizer_class: A class of `keras.optimizers`.
        factor: Function from a variable's path to its factor, such as
            `depth_factor` returns, or to a function, with a hash, from the
            number of steps done to it.

    Returns:
        The class, with the factor filled in: it takes the arguments of
        `optimizer_class`.
    """
    return functools.partial(_scaled(optimizer_class), factor=factor)


class _ScaledRates(ScaledRates):
    """The same mixin, which is saved with its factor."""

    def build(self, variables):
        paths = collections.Counter(variable.path for variable in variables)
        for path, count in paths.items():
            if count > 1 and self.factor(path) != 1.0:
                raise ValueError(
                    "Variables must differ in their paths, by which they have "
                    f"their rates. Received: {count} variables {path!r}, as of "
                    "an image tower and a text tower."
                )
        super().build(variables)

    def get_config(self):
        factor = keras.saving.serialize_keras_object(self.factor)
        return {**super().get_config(), "factor": factor}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        factor = keras.saving.deserialize_keras_object(
            config["factor"], custom_objects=custom_objects
        )
        return super().from_config({**config, "factor": factor}, custom_objects)


@functools.cache
def _scaled(optimizer_class):
    """Return the subclass of an optimizer class, registered with Keras."""
    name = f"ScaledRates{optimizer_class.__name__}"
    derived = dict(derived=(_scaled, optimizer_class))
    bases = (_ScaledRates, optimizer_class, UpdateByRate)
    if issubclass(optimizer_class, FusedAdam):
        bases = (_ScaledRates, UpdateByRate, optimizer_class)
    subclass = Derived(name, bases, derived)
    register = keras.saving.register_keras_serializable("keras_vit", name)
    return register(subclass)


# A file that was saved by another process must find its class.
for _name in (
    "SGD Adam AdamW Adadelta Adafactor Adagrad Adamax Ftrl Lamb Lion Muon "
    "Nadam RMSprop ScheduleFreeAdamW"
).split():
    _scaled(getattr(keras.optimizers, _name))
