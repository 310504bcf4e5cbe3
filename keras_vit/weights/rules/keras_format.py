"""This package's `.keras` and `.weights.h5` files, of any family.

Keras numbers the variables of a layer in the order in which it creates them;
this module maps the numbers to names.
"""

import inspect

import keras

from keras_vit._earlier_names import rename
from keras_vit.weights import resize
from keras_vit.weights.rules import configs, patches, table

# Fields that the first files lack, and what they mean there.
_LATER: dict[str, dict] = dict(
    beit=dict(class_token=True, relative_dim=0, post_norm=False),
    dinov2=dict(
        norm="layer",
        parallel=False,
        post_norm=False,
        pre_norm=False,
        query_key_norm=False,
    ),
)


def layers_of(config: dict) -> list[dict]:
    """Return the layers of a model's config.json."""
    found = configs.section(config, "config").get("layers", [])
    if not isinstance(found, list) or not all(
        isinstance(layer, dict) for layer in found
    ):
        raise ValueError("expected `layers` to be a list of layers")
    return found


def layer_of(config: dict, class_name: str) -> dict:
    """Return the first layer of a class, or {}."""
    layers = (x for x in layers_of(config) if x.get("class_name") == class_name)
    return next(layers, {})


def settings_of(config: dict, name: str) -> dict:
    """Return the config of the layer of a name, or {}."""
    found = (configs.section(layer, "config") for layer in layers_of(config))
    return next((layer for layer in found if layer.get("name") == name), {})


def family_of(config: dict) -> str | None:
    """Return the family that a model's config names."""
    layer = layer_of(config, "Metadata")
    return configs.section(layer, "config").get("family")


def saved_metadata(config: dict) -> dict:
    """Return the metadata in a model's config."""
    layer = layer_of(config, "Metadata")
    saved = configs.section(layer, "config")
    if not saved:
        return {}
    images = configs.section(layer_of(config, "InputLayer"), "config")
    shape = images.get("batch_shape", [None] * 4)
    frames = shape[1] if len(shape) == 5 else None
    head = settings_of(config, "head")
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in rename(
            configs.section(saved, "architecture")
        ).items()
    }
    return configs.known(
        **_LATER.get(str(saved.get("family")), {}) | fields,
        image_size=configs.pair(dict(batch_shape=shape[-3:-1]), "batch_shape"),
        channels=configs.integer(dict(batch_shape=shape[-1]), "batch_shape"),
        num_frames=configs.integer(dict(batch_shape=frames), "batch_shape"),
        pixel_mean=configs.numbers(saved, "pixel_mean"),
        pixel_std=configs.numbers(saved, "pixel_std"),
        resampling=configs.choice(saved, "resampling", tuple(resize.METHODS)),
        class_names=class_names(head),
        similarity_head=configs.integer(head, "projection_size", 0),
        classifier_activation=_registered(head.get("activation")),
        include_preprocessing=bool(settings_of(config, "preprocessing")),
        has_feature_maps=_has_feature_maps(layer, fields) or None,
        loss=_loss(configs.section(config, "compile_config").get("loss")),
    )


def _has_feature_maps(layer, fields):
    """Return whether a model has `[B, H, W, D]` in place of `[B, D]`."""
    shape = configs.section(layer, "build_config").get("input_shape")
    is_map = isinstance(shape, list) and len(shape) > 3
    return is_map and fields.get("pooling") != "unpooled"


def _registered(activation):
    """Return an activation of Keras by name, or a registered function.

    The name of another is refused where a head gets it.
    """
    if not isinstance(activation, dict):
        return activation
    name = activation.get("config")
    if not isinstance(name, str):  # a layer
        name = str(activation.get("class_name"))
    return keras.saving.get_registered_object(name) or name


def _loss(saved):
    """Return the loss of Keras or of this package that was saved, or None."""
    if not isinstance(saved, dict):  # of several outputs, or a function
        return None
    name, registered = saved.get("class_name"), saved.get("registered_name")
    kind = getattr(keras.losses, str(name), None)
    if str(registered).startswith("keras_vit>"):
        kind = keras.saving.get_registered_object(registered)
    if not inspect.isclass(kind) or not issubclass(kind, keras.losses.Loss):
        return None
    return kind.from_config(configs.section(saved, "config"))


def class_names(head: dict) -> tuple[str, ...] | None:
    """Return the class names in the config of a head, or None."""
    # `labels` was the key before `class_names`.
    key = "class_names" if "class_names" in head else "labels"
    return configs.names(head, key)


def _name_variables(arrays, rules):
    """Name variables as rules do, in the order in which layers create them."""
    names = {}
    for rule in rules:
        layer, _, last = rule.path.rpartition("/")
        names.setdefault(layer, []).append(last)
    named = {}
    for name, array in arrays.items():
        layer, _, index = name.rpartition("/")
        if not layer:  # of the metrics
            continue
        parts = sorted(names.get(layer, ()), key=_order)
        number = int(index)
        last = parts[number] if number < len(parts) else index
        named[f"{layer}/{last}"] = array
    return named, None


def _order(name):
    """Sort key: a variable's position in its layer; others as in the table."""
    known = ("kernel", "gamma", "bias", "beta")
    known += ("moving_mean", "moving_variance")
    return known.index(name) if name in known else 0


def projection(metadata: dict) -> list[str]:
    """Return the paths of the projection of a head of similarities, if any."""
    if not metadata.get("similarity_head") or not metadata.get("classes"):
        return []
    return [f"head/projection/{part}" for part in ("kernel", "bias")]


def derive(
    like: table.Format, requires: tuple[str, ...], **kwargs
) -> table.Format:
    """Return the format of a family's `.keras` and `.weights.h5` files.

    Args:
        like: Another format of the family, whose rules name the variables.
        requires: See `table.Format`, of numbered names.
        **kwargs: Other fields of `table.Format`.
    """

    def rules(metadata):
        paths = [rule.path for rule in like.rules(metadata)]
        return [
            table.Rule(path, (path,)) for path in paths + projection(metadata)
        ]

    def flatten(arrays, specified):
        if not set(specified) - {"grid"}:
            raise ValueError(
                "it has no config, which would specify the architecture: fill "
                "a model with `model.load_weights(path)`, or save it as .keras"
            )
        metadata = specified | {
            key: any(name.startswith(layer) for name in arrays)
            for key, layer in table.TOP.items()
        }
        return _name_variables(arrays, rules(metadata))

    def read_arrays(arrays, config, specified):
        found = dict(classes=None, representation_size=None)
        for key, layer in (
            ("classes", "head"),
            ("classes", "head/token"),  # of two classifiers
            ("representation_size", "pre_logits"),
        ):
            if f"{layer}/bias" in arrays:
                (found[key],) = arrays[f"{layer}/bias"].shape
        return specified | found

    return table.Format(
        requires=requires,
        rules=rules,
        read_arrays=read_arrays,
        read_config=saved_metadata,
        flatten=flatten,
        required=like.required,
        resampling=like.resampling,
        check=patches.check_heads_and_grid,
        **kwargs,
    )
