"""The builder of models of any family.

Four steps: resolve what the arguments and the weights specify, assemble the
graph, add the head, and fill it with the weights.
"""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit import layers
from keras_vit._arguments import check_class_names
from keras_vit.models.arguments import (
    check_feature_maps,
    check_input_shape,
    with_defaults,
)
from keras_vit.models.families import Family, is_of_training
from keras_vit.models.image_model import ImageModel, vector
from keras_vit.models.maps import feature_maps
from keras_vit.ops.dtypes import wide_policy
from keras_vit.weights import checkpoint, load, preprocessing, registry, rules


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the arguments and the weights together specify of a model.

    Attributes:
        family: The family.
        config: The architecture.
        arguments: All of `ModelArguments` but `weights`, resolved.
        source: The checkpoint; None for random weights.
        takes_head: Whether the head is the checkpoint's.
    """

    family: Family
    config: Any
    arguments: dict[str, Any]
    source: checkpoint.Checkpoint | None
    takes_head: bool

    @property
    def metadata(self) -> dict:
        """What the checkpoint specifies; nothing without one."""
        return {} if self.source is None else self.source.metadata


def build(
    family: Family,
    given: Mapping[str, Any],
    variant: str | None = None,
    source: checkpoint.Checkpoint | None = None,
) -> ImageModel:
    """Build a model of a family: weights, preprocessing, body and head.

    Args:
        family: The family.
        given: Fields of its configuration, and `ModelArguments`.
        variant: Name of the constructor, whose released weights `weights` may
            name.
        source: An open checkpoint, in place of `weights`.

    Raises:
        ValueError: If an argument has no possible value, if arguments
            contradict one another, if the image is not a multiple of the patch,
            or if the weights do not fit the model.
    """
    arguments = with_defaults(given)
    fields = {key: given[key] for key in given if key not in arguments}
    weights = arguments.pop("weights")
    if source is None and weights is not None:
        grid = arguments["position_grid"]
        source = registry.open_weights(weights, variant, grid)
    if source is not None and source.has_decoder:
        source = checkpoint.encoder_of(source)
    plan = _resolve(family, fields, arguments, source, variant)
    with own_paths(), policy(arguments["dtype"]):
        images, x = _assemble(plan)
        if arguments["include_top"]:
            x = _add_head(plan, x)
    name = arguments["name"] or variant or family.title
    model = ImageModel(images, x, name=name)
    if arguments["remat"]:
        _recompute_activations(model)
    _fill(plan, model)
    return feature_maps(model) if arguments["feature_maps"] else model


def _files_of(family):
    """Return the family whose files a family has, itself but for some."""
    return getattr(rules.FAMILIES[family], "FILES_OF", family)


def _resolve(family, fields, arguments, source, variant):
    """Return the plan of a model: arguments, then weights, then defaults."""
    if source is not None:
        if _files_of(source.family) != _files_of(family.name):
            raise ValueError(
                f"`weights` must be of the family {family.name!r}. Received: "
                f"{source.name!r}, of the family {source.family!r}. Open it "
                "with keras_vit.from_pretrained."
            )
        source = checkpoint.complete(source, fields)
    metadata = {} if source is None else source.metadata
    config = _resolve_config(family.config, fields, metadata)
    check_feature_maps(arguments["feature_maps"], arguments["include_top"])
    takes_head = _resolve_head(arguments, source and metadata)
    if arguments["input_shape"] is None:
        default = family.input_shapes.get(variant or "", (224, 224, 3))
        stride = family.stride and family.stride(config)
        arguments["input_shape"] = _input_shape(metadata, stride, default)
    shape = arguments["input_shape"]
    check_input_shape(shape, family.takes_video)
    fit_sizes = source and getattr(
        rules.FAMILIES[source.family], "fit_sizes", None
    )
    if fit_sizes:
        # Sizes that depend on that of the image.
        changes = fit_sizes(metadata, config, tuple(shape[-3:-1]))
        config = dataclasses.replace(config, **changes)
    return Plan(family, config, arguments, source, takes_head)


def _resolve_head(arguments, metadata):
    """Resolve the arguments of the head; return whether it is the weights'."""
    classes, class_names = arguments["classes"], arguments["class_names"]
    check_class_names(class_names, classes)
    if classes is None and class_names is not None:
        arguments["classes"] = classes = len(class_names)
    if metadata is None or not arguments["include_top"]:
        return False
    found = metadata.get("classes")
    if found is None and classes is None:
        raise ValueError(
            "`classes` must be given, or include_top=False, since the weights "
            "have no head. Received: classes=None"
        )
    if found is None or classes not in (None, found):
        return False
    arguments["classes"] = found
    for name in ("class_names", "representation_size"):
        if arguments[name] is None:
            arguments[name] = metadata.get(name)
    return True


def _assemble(plan):
    """Return the images and the representation, `[B, D]` or `[B, 2, D]`."""
    arguments, shape = plan.arguments, plan.arguments["input_shape"]
    statistics = (
        arguments["pixel_mean"],
        arguments["pixel_std"],
        plan.source and plan.metadata,
    )
    name = "images" if len(shape) == 3 else "videos"
    wide = _wide_dtype()
    images = keras.Input(shape, name=name, dtype=wide)
    x = layers.EnsureShape(name="ensure_shape", dtype=wide)(images)
    if arguments["include_preprocessing"]:
        scale, offset = preprocessing.scale_and_offset(*statistics, shape[-1])
        x = layers.Rescaling(scale, offset, name="preprocessing", dtype=wide)(x)
    x = plan.family.forward(plan.config, x)
    if not arguments["include_top"]:
        x = vector(x)
    pixel_mean, pixel_std = preprocessing.known(*statistics, shape[-1])
    return images, layers.Metadata(
        plan.family.name,
        dataclasses.asdict(plan.config),
        pixel_mean,
        pixel_std,
        provenance=plan.source and plan.source.provenance,
        resampling=plan.metadata.get("resampling"),
        name="metadata",
    )(x)


def _add_head(plan, x):
    """Return the class scores, `[B, classes]`."""
    arguments = plan.arguments
    if arguments["representation_size"]:
        x = keras.layers.Dense(
            arguments["representation_size"],
            activation="tanh",
            kernel_initializer="lecun_normal",  # Flax' default
            name="pre_logits",
        )(x)
    head: Any = layers.ClassificationHead
    if len(x.shape) == 3:
        head = layers.DistilledHead
    projection_size = plan.metadata.get("similarity_head")
    if plan.takes_head and projection_size is not None:
        head = functools.partial(
            layers.SimilarityHead, projection_size=projection_size
        )
    return head(
        1000 if arguments["classes"] is None else arguments["classes"],
        class_names=arguments["class_names"],
        activation=arguments["classifier_activation"],
        bias_initializer=keras.initializers.Constant(
            arguments["head_bias_init"]
        ),
        name="head",
        dtype=_wide_dtype(),
    )(x)


def _recompute_activations(model):
    """Make the blocks recompute their activations in the backward pass."""
    for block in model.blocks:
        if not hasattr(block, "remat"):
            raise ValueError(
                f"`remat` must be False for the family {model.family!r}, whose "
                "blocks cannot recompute their activations. Received: "
                "remat=True"
            )
        block.remat = True


def _fill(plan, model):
    """Give a model the values of its checkpoint, if there is one."""
    if plan.source is None:
        return
    wanted = model.metadata
    if not plan.takes_head:
        wanted["classes"] = None
    load.fill(
        model,
        plan.source,
        wanted,
        resize_patches=plan.arguments["resize_patches"],
    )
    if not plan.takes_head:
        return
    if not any(
        keras.ops.convert_to_numpy(variable).any()
        for variable in model.get_layer("head").weights
        if variable.name == "kernel"
    ):
        warnings.warn(
            f"The head of {plan.source.name!r} is all zeros: its classes all "
            "score alike. The imagenet21k files of 2020 have such a head, "
            "for fine-tuning: pass `classes=...` or `include_top=False`. The "
            "weights named 'augreg' have a trained head of the 21k classes.",
            stacklevel=3,
        )
    _order_classes(model, plan.metadata.get("class_names"))


def _order_classes(model, before):
    """Put a head into the order of its names, from that of its weights."""
    names, head = model.class_names, model.head
    if not before or before == names or names is None:
        return
    if set(before) != set(names):
        for name in set(before) & set(names):
            once = before.count(name) == names.count(name) == 1
            if once and before.index(name) != names.index(name):
                raise ValueError(
                    "`class_names` must be those of the weights, in any order, "
                    "or others in their place. Received: "
                    f"{name!r} as class {names.index(name)}, which is class "
                    f"{before.index(name)} of the weights, beside new names. "
                    "For a new head, open the weights with include_top=False."
                )
        return
    if len(set(names)) < len(names):
        return  # of ImageNet two are cranes
    order = [before.index(name) for name in names]
    is_single = hasattr(head, "kernel")
    for layer in [head] if is_single else [head.token, head.distillation]:
        for weight in (layer.kernel, layer.bias):
            value = keras.ops.convert_to_numpy(weight)
            weight.assign(value[..., order])


def _resolve_config(config, given, metadata):
    """Return a configuration from arguments, then weights, then defaults."""
    fields = {}
    for field in dataclasses.fields(config):
        required = field.default is dataclasses.MISSING
        value = given.get(field.name)
        if value is None and not is_of_training(field):
            value = metadata.get(field.name)
        if value is None and not required:
            value = field.default
        if value is None and required:
            raise ValueError(
                f"`{field.name}` must be given, since there are no weights to "
                f"take it from. Received: {field.name}=None"
            )
        fields[field.name] = value
    return config(**fields)


def _input_shape(metadata, stride, default):
    """Return the shape of the input that weights were trained with.

    Args:
        metadata: The metadata of the weights.
        stride: Pixels between cells of the grid, if the config has them.
        default: The shape without weights.
    """
    size = default[:-1]
    if "image_size" in metadata:
        frames = metadata.get("num_frames")
        size = (*([] if frames is None else [frames]), *metadata["image_size"])
    grid = metadata.get("grid")
    if grid is not None:
        stride = stride or metadata.get("stride")
        if stride is None:
            raise ValueError(
                "`position_grid` must be None for weights that state the size "
                "of their images, or have no grid of positions. Received: "
                f"position_grid={tuple(grid)}"
            )
        pairs = zip(grid, stride[-len(grid) :], strict=True)
        size = [patches * pixels for patches, pixels in pairs]
    if len(size) < len(default) - 1:  # a model of videos from one of images
        size = (default[0], *size)
    return (*size, metadata.get("channels", default[-1]))


def _wide_dtype():
    """Return the dtype of pixels and scores, never of 16 bits."""
    dtype = wide_policy()
    if dtype == "float32":
        return dtype
    with warnings.catch_warnings(action="ignore"):
        found = keras.ops.zeros((), dtype).dtype
    if keras.backend.standardize_dtype(found) != dtype:
        raise ValueError(
            "`dtype` must be at most float32, unless JAX computes in "
            "64 bits: jax.config.update('jax_enable_x64', True). Received: "
            "a policy of float64"
        )
    if keras.backend.result_type(dtype, dtype) != dtype:
        warnings.warn(
            "Under JAX and PyTorch Keras computes products and means of "
            "float64 in float32. In a model of dtype 'float64' only "
            "TensorFlow computes with 64 bits throughout.",
            stacklevel=2,
        )
    return dtype


@contextlib.contextmanager
def own_paths():
    """Make a context, or a decorator, in which variables have files' paths.

    Within a layer's `build` and within `keras.name_scope` Keras puts its name
    before all paths.
    """
    with keras.name_scope("", override_parent=""):
        yield


@contextlib.contextmanager
def policy(dtype):
    """Set a dtype policy, if given, for the layers made inside."""
    before = keras.config.dtype_policy()
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
