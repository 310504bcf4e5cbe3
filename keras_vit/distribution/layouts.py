"""Layouts: the device of each shard of each variable, on the JAX backend.

The devices form a mesh of two axes: a batch is divided along "data", a block
along "model". XLA derives all communication from the layouts of variables and
of the outputs of a few layers.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal

import keras

from keras_vit._arguments import Count, checked
from keras_vit.models import ImageModel
from keras_vit.models.families import FAMILIES

Strategy = Literal["data", "fsdp", "tensor", "fsdp+tensor"]


class Layouts(keras.distribution.ModelParallel):
    """Divides the variables of a model along the axes "data" and "model".

    Args:
        device_mesh: A mesh with these two axes.
        fully_sharded: Whether each variable is divided along "data".
        tensor: Whether blocks are divided along "model".
    """

    def __init__(
        self,
        device_mesh: keras.distribution.DeviceMesh,
        fully_sharded: bool,
        tensor: bool,
    ):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(device_mesh),
            batch_dim_name="data",
            auto_shard_dataset=False,
        )
        self._fully_sharded = fully_sharded
        self._tensor = tensor
        self._sharded = {
            # "_" also matches the "/" of paths, since the names of an
            # optimizer's variables contain the paths of their weights.
            path.replace("/", "_"): cut
            for family in FAMILIES.values()
            for path, cut in getattr(family.block, "SHARDED", {}).items()
        }
        self._sharded_path = re.compile(
            rf"(?:^|_)({'|'.join(self._sharded)})(?:_|$)"
        )
        # Outputs that stay divided along the batch only, so that XLA moves
        # variables to them, not them to variables,
        patterns = [family.layers for family in FAMILIES.values()]
        patterns = ["pre_logits", "head", *filter(None, patterns)]
        self._by_example = re.compile(
            rf"(?:.*/)?(?:{'|'.join(patterns)})/output"
        )
        # and those that are divided by heads or hidden units as well.
        columns = {
            path.rpartition("/")[0]
            for family in FAMILIES.values()
            for path, cut in getattr(family.block, "SHARDED", {}).items()
            if path.endswith("/kernel") and cut[0][-1] == "model"
        }
        self._by_unit = re.compile(rf".*/(?:{'|'.join(columns)})/output")

    def get_variable_layout(self, variable):
        """Return the layout of a variable.

        Args:
            variable: A weight of a model, or a variable of its optimizer; of
                metrics and seeds every device holds a copy.

        Raises:
            ValueError: If a block cannot be divided in this way.
        """
        # Keras gives an optimizer's slots the layout of their weight.
        given = super().get_variable_layout(variable)
        if any(given.axes):
            return given
        axes = [None] * len(variable.shape)
        if _is_weight(variable):
            if self._tensor:
                axes = self._cut_block(variable, axes)
            if self._fully_sharded:
                axes = self._cut_all(variable, axes)
        return keras.distribution.TensorLayout(axes, self.device_mesh)

    def get_tensor_layout(self, path):
        """Return the layout of a layer's output, or None."""
        if self._by_unit.fullmatch(path):
            axes = ("data", None, "model" if self._tensor else None)
        elif self._by_example.fullmatch(path):
            axes = ("data",)
        else:
            return None
        return keras.distribution.TensorLayout(axes, self.device_mesh)

    def _cut_block(self, variable, axes):
        """Divide the axes of heads and hidden units along "model"."""
        found = self._sharded_path.search(variable.path.replace("/", "_"))
        if not found or len(self._sharded[found[1]][0]) != len(axes):
            return axes
        # Only `check_model` knows the number of heads.
        cut, argument, times = self._sharded[found[1]]
        size = variable.shape[cut.index("model")] // times
        _check_multiple(argument, size, self.device_mesh.shape[1])
        return list(cut)

    def _cut_all(self, variable, axes):
        """Divide the last free axis of a suitable length, if any, along
        "data".

        The last axis of a kernel is that of its outputs. Their layout is fixed
        by `get_tensor_layout`, so that XLA must gather the kernel. If kernels
        were divided along their inputs, XLA would divide the gradients of the
        inputs and gather those of the outputs. Also, the statistics of a
        standardised kernel, computed for each output channel, then need no
        communication.
        """
        num_shards = self.device_mesh.shape[0]
        for axis in reversed(range(len(axes))):
            if axes[axis] is None and variable.shape[axis] % num_shards == 0:
                return [*axes[:axis], "data", *axes[axis + 1 :]]
        return axes


@checked
def distribution(
    strategy: Strategy,
    devices: Sequence,
    model_parallel: Count = 1,
    *,
    num_heads: Count | None = None,
    mlp_dim: Count | None = None,
) -> keras.distribution.DataParallel | keras.distribution.ModelParallel:
    """Return how models and batches are divided among devices (JAX).

    Models must be built, compiled and trained in its `scope()`; weights may be
    loaded there. Datasets are not divided: each process reads its own shard.
    A batch must be a multiple of the devices, or groups of them, that share
    it.

    Args:
        strategy: "data": every device holds the complete model and a shard of
            the batch. "fsdp": every device also holds only a shard of each
            variable, of weights and optimizer slots, and gathers the rest when
            needed (Zhao et al. 2023, 2304.11277). "tensor": groups of
            `model_parallel` devices divide the heads and the hidden units of
            each block among themselves. "fsdp+tensor": both.
        devices: Names as in `keras.distribution.list_devices()`, or jax.Device
            objects, including those of absent hardware. Groups consist of
            neighbours.
        model_parallel: Devices that share a block; 1 without "tensor".
        num_heads, mlp_dim: Sizes of the model, to check them before it is
            built; otherwise `check_model` checks them afterwards.

    Raises:
        ValueError: If the strategy is unknown, or if `model_parallel` does not
            divide the number of devices, heads or hidden units.

    Example:
        layout = distribution("fsdp", keras.distribution.list_devices())
        with layout.scope():
            model = keras_vit.ViTB16(classes=10)
            model.compile(
                "adam",
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            )
            model.fit(images, labels)
    """
    devices = list(devices)
    tensor = "tensor" in strategy
    if not devices:
        raise ValueError("`devices` must not be empty. Received: devices=[]")
    if model_parallel > 1 and not tensor:
        raise ValueError(
            "`model_parallel` must be 1 with "
            f"strategy={strategy!r}. Received: model_parallel={model_parallel}"
        )
    if len(devices) % model_parallel:
        raise ValueError(
            f"`model_parallel` must divide the number of devices, "
            f"{len(devices)}. Received: model_parallel={model_parallel}. "
            f"{_remedy(len(devices))}"
        )
    for argument, size in (("num_heads", num_heads), ("mlp_dim", mlp_dim)):
        if size is not None and tensor:
            _check_multiple(argument, size, model_parallel)
    if strategy == "data":
        return keras.distribution.DataParallel(
            keras.distribution.DeviceMesh((len(devices),), ["data"], devices),
            auto_shard_dataset=False,
        )
    shape = (len(devices) // model_parallel, model_parallel)
    return Layouts(
        keras.distribution.DeviceMesh(shape, ["data", "model"], devices),
        fully_sharded="fsdp" in strategy,
        tensor=tensor,
    )


def check_model(
    layout: keras.distribution.DataParallel | keras.distribution.ModelParallel,
    model: keras.Model,
) -> None:
    """Check that every device gets complete heads and as many hidden units.

    Args:
        layout: The result of `distribution`.
        model: A model of this package, built under it or not.

    Raises:
        ValueError: If a size is not a multiple of `model_parallel`.
    """
    if not getattr(layout, "_tensor", False):
        return
    num_shards = layout.device_mesh.shape[1]
    for layer in ImageModel.find(model).blocks:
        divided = {cut[1] for cut in getattr(layer, "SHARDED", {}).values()}
        for argument in ("num_heads", "mlp_dim"):
            if argument in divided:
                _check_multiple(argument, getattr(layer, argument), num_shards)


def _is_weight(variable):
    """Whether a variable belongs neither to a metric nor to a seed."""
    aggregation = getattr(variable, "aggregation", "none")
    dtype = getattr(variable, "dtype", "float32")
    return aggregation != "sum" and keras.backend.is_float_dtype(dtype)


def _check_multiple(argument, size, model_parallel):
    if size % model_parallel:
        raise ValueError(
            f"`{argument}` must be a multiple of model_parallel="
            f"{model_parallel}, the devices that share a block. "
            f"Received: {argument}={size}. "
            f"{_remedy(size)}"
        )


def _remedy(number):
    divisors = [n for n in range(1, math.isqrt(number) + 1) if not number % n]
    divisors += [number // n for n in reversed(divisors) if n * n < number]
    return f"Possible values: model_parallel={', '.join(map(str, divisors))}"
