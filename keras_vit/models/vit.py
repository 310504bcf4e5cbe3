"""The Vision Transformer and its hybrids.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words" (2010.11929), checked
against vit_jax/models_vit.py of google-research/vision_transformer. What
differs: models take pixels in [0, 255] and scale them themselves, and q, k and
v come from one projection.
"""

import inspect

import keras
from keras import ops

from keras_vit import layers
from keras_vit.models import arguments
from keras_vit.weights import checkpoint, load, pixels, registry
from keras_vit.weights.rules import table

_TINY = dict(hidden_size=192, num_layers=12, num_heads=3, mlp_dim=768)
_SMALL = dict(hidden_size=384, num_layers=12, num_heads=6, mlp_dim=1536)
_BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)
_LARGE = dict(hidden_size=1024, num_layers=24, num_heads=16, mlp_dim=4096)
_HUGE = dict(hidden_size=1280, num_layers=32, num_heads=16, mlp_dim=5120)

# Table 1, the sizes that the release adds to it, and the hybrids of section
# 4.1, whose patches are cut from the trunk's feature map.
VARIANTS = {
    "ViTTi16": dict(patch_size=16, **_TINY),
    "ViTS32": dict(patch_size=32, **_SMALL),
    "ViTS16": dict(patch_size=16, **_SMALL),
    "ViTB32": dict(patch_size=32, **_BASE),
    "ViTB16": dict(patch_size=16, **_BASE),
    "ViTB8": dict(patch_size=8, **_BASE),
    "ViTL32": dict(patch_size=32, **_LARGE),
    "ViTL16": dict(patch_size=16, **_LARGE),
    "ViTH14": dict(patch_size=14, **_HUGE),
    # The root alone divides by 4: patches of 8 make 32 pixels, not 16.
    "RViTTi16": dict(patch_size=8, resnet_units=(), **_TINY),
    "R26ViTS32": dict(patch_size=1, resnet_units=(2, 2, 2, 2), **_SMALL),
    "R26ViTB32": dict(patch_size=1, resnet_units=(2, 2, 2, 2), **_BASE),
    # Stage 4 is removed and its units placed in stage 3 (option ii).
    "R50ViTB16": dict(patch_size=1, resnet_units=(3, 4, 9), **_BASE),
    "R50ViTB32": dict(patch_size=1, resnet_units=(3, 4, 6, 3), **_BASE),
    "R50ViTL16": dict(patch_size=1, resnet_units=(3, 4, 9), **_LARGE),
    "R50ViTL32": dict(patch_size=1, resnet_units=(3, 4, 6, 3), **_LARGE),
}


def ViT(
    *,
    weights: str | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int, int, int] | None = None,
    classifier_activation: str | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    classifier: str | None = None,
    representation_size: int | None = None,
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    drop_path_rate: float = 0.0,
    remat: bool = False,
    position_embedding: str | None = None,
    position_placement: str | None = None,
    gelu_approximate: bool | None = None,
    layer_norm_epsilon: float | None = None,
    resnet_units: tuple[int, ...] | None = None,
    resnet_width: float | None = None,
    resnet_numerics: str | None = None,
    pixel_mean: float | tuple[float, ...] | None = None,
    pixel_std: float | tuple[float, ...] | None = None,
    head_bias_init: float = 0.0,
    labels: tuple[str, ...] | None = None,
    position_grid: tuple[int, int] | None = None,
    resize_patches: bool = False,
    **unknown,
) -> keras.Model:
    """Builds a Vision Transformer, or a hybrid, of any size.

    What is None is taken from the weights, and without weights is what the
    text says; sizes must be given then.

    Args:
        weights: A checkpoint (see `keras_vit.weights.open_checkpoint`): an
            authors' npz file, a state dict of timm, a directory of
            transformers or "hf://owner/name", a model or preset of
            keras-hub, our own `.weights.h5` or `.keras`. None for random
            weights.
        include_top: Whether to end in class scores; without it the output is
            the representation y of equation 4.
        classes: Number of classes; 1000. Another number than the weights'
            starts a new head from zeros and drops their `pre_logits`, as the
            paper fine-tunes.
        input_shape: (height, width, channels) in pixels; (224, 224, 3).
            Position embeddings are resampled to another grid, patch kernels
            folded to other channels.
        classifier_activation: Activation of the head; None gives logits.
        include_preprocessing: Whether the model takes pixels in [0, 255] and
            scales them; otherwise it takes scaled values.
        name: Name of the model.
        patch_size: Pixels per side of a patch, or (height, width); of the
            feature map in a hybrid.
        hidden_size: Width D of the tokens.
        num_layers: Number of Transformer blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        classifier: "token" reads the class token; "gap" the average of all
            tokens, "gap_norm" with the last LayerNorm after the average
            (timm's `fc_norm`); "token_gap" is "gap_norm" over the patches of
            a model with a class token (MAE's fine-tuning, BEiT); "unpooled"
            gives the grid of all tokens. "token".
        representation_size: Width of the tanh layer `pre_logits` before the
            head; none.
        dropout_rate: Dropout after the position embeddings and in the blocks.
        attention_dropout_rate: Dropout of the attention weights.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        remat: Whether blocks recompute their activations in the backward
            pass: less memory, a third more work.
        position_embedding: "learned_1d", "learned_2d", "relative" or "none"
            (Table 8); "learned_1d".
        position_placement: Where embeddings are added: "stem" (once, before
            the encoder), "every_layer" (a table for each block) or
            "every_layer_shared" (one table, before each block); "stem".
        gelu_approximate: The tanh form of GELU, or the exact one; tanh.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-6.
        resnet_units: Units per stage of the hybrid's trunk, () for its root
            alone; no trunk.
        resnet_width: Width factor of the trunk; 1.
        resnet_numerics: Epsilons of the trunk, "authors" or "timm";
            "authors".
        pixel_mean, pixel_std: What is subtracted from pixels and what they
            are divided by, for all channels or each; 127.5, which scales
            them to [-1, 1].
        head_bias_init: The head's first bias; -10 for a sigmoid loss over
            many classes.
        labels: Names of the classes, kept in `model.get_layer("head").labels`;
            none.
        position_grid: (height, width) of the weights' position embeddings,
            where these cover no square and the file does not tell.
        resize_patches: Whether to fit the weights to another `patch_size`
            (FlexiViT), rather than refuse them.

    Input shape: `[B, H, W, C]`, uint8 or float.
    Output shape: `[B, classes]`; `[B, D]` without the top; with "unpooled"
        `[B, H / P, W / P, ...]`.

    Returns:
        A functional `keras.Model`. Its blocks are `encoderblock_{i}`.

    Raises:
        ValueError: If an argument has no possible value, if arguments
            contradict one another, if the image is no multiple of the patch,
            or if the weights do not fit the model.
        TypeError: If there is no such argument.

    Example:
        model = keras_vit.ViT(
            patch_size=4, hidden_size=64, num_layers=4, num_heads=4,
            mlp_dim=128, input_shape=(32, 32, 3), classes=10,
        )

    Reference:
        Dosovitskiy et al. 2021, section 3 and equations 1 to 4.
    """
    arguments.refuse_unknown("ViT", unknown, _keywords())
    source = facts = None
    if weights is not None:
        source = registry.open_weights(weights, None, position_grid)
        facts = source.facts
        checkpoint.demand(
            source,
            num_heads=num_heads,
            classifier=classifier,
            gelu_approximate=gelu_approximate,
            layer_norm_epsilon=layer_norm_epsilon,
            resnet_numerics=resnet_numerics,
        )

    def own(given, fact, default=None):
        """What is given, or else the weights' own, or else the default."""
        return given if given is not None else (facts or {}).get(fact, default)

    patch_size = own(patch_size, "patch_size")
    hidden_size = own(hidden_size, "hidden_size")
    num_layers = own(num_layers, "num_layers")
    num_heads = own(num_heads, "num_heads")
    mlp_dim = own(mlp_dim, "mlp_dim")
    resnet_units = own(resnet_units, "resnet_units")
    resnet_width = own(resnet_width, "resnet_width", 1)
    resnet_numerics = own(resnet_numerics, "resnet_numerics", "authors")
    classifier = own(classifier, "classifier", "token")
    position_embedding = own(
        position_embedding, "position_embedding", "learned_1d"
    )
    position_placement = own(position_placement, "position_placement", "stem")
    gelu_approximate = own(gelu_approximate, "gelu_approximate", True)
    layer_norm_epsilon = own(layer_norm_epsilon, "layer_norm_epsilon", 1e-6)
    arguments.check_sizes(
        patch_size=patch_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
    )
    arguments.check_flags(
        include_top=include_top,
        include_preprocessing=include_preprocessing,
        remat=remat,
        gelu_approximate=gelu_approximate,
        resize_patches=resize_patches,
    )
    arguments.check_rates(
        dropout_rate=dropout_rate,
        attention_dropout_rate=attention_dropout_rate,
        drop_path_rate=drop_path_rate,
    )
    layers.arguments.check_choice(
        classifier, "classifier", arguments.CLASSIFIERS
    )
    layers.arguments.check_epsilon(layer_norm_epsilon, "layer_norm_epsilon")
    arguments.check_positions(position_embedding, position_placement)
    if resnet_units is not None:
        arguments.check_stem(resnet_units, resnet_width)
    arguments.check_head(classes, representation_size, head_bias_init, labels)
    if classes is None and labels is not None:
        classes = len(labels)
    if (
        source is not None
        and include_top
        and (facts["classes"] is None and classes is None)
    ):
        raise ValueError(
            "`classes` must be given, or include_top=False, since the weights "
            "have no head. Received: classes=None"
        )
    keep_head = (
        source is not None
        and include_top
        and facts["classes"] is not None
        and classes in (None, facts["classes"])
    )
    if keep_head:
        classes = facts["classes"]
        labels = own(labels, "labels")
        representation_size = own(representation_size, "representation_size")
    if input_shape is None and source is not None:
        grid = facts.get("grid")
        size = facts.get("image_size", (224, 224))
        if grid is not None:
            size = [n * s for n, s in zip(grid, facts["stride"], strict=True)]
        input_shape = (*size, facts["channels"])
    input_shape = (224, 224, 3) if input_shape is None else input_shape
    arguments.check_input_shape(input_shape)
    classes = 1000 if classes is None else classes

    # Equation 1: patches, class token, positions.
    images = keras.Input(input_shape, name="images")
    x = images
    if include_preprocessing:
        scale, offset = pixels.scale_and_offset(
            pixel_mean, pixel_std, facts, input_shape[-1]
        )
        x = keras.layers.Rescaling(
            scale, offset, name="preprocessing", dtype="float32"
        )(x)
    if resnet_units is not None:
        x = layers.ResNetV2Stem(
            tuple(resnet_units), resnet_width, resnet_numerics, name="resnet"
        )(x)
    embedding = layers.PatchEmbedding(patch_size, hidden_size, name="embedding")
    x = embedding(x)  # [B, N, D]
    has_class_token = classifier in ("token", "token_gap")
    if has_class_token:
        x = layers.ClassToken(name="class_token")(x)  # [B, N + 1, D]

    def add_positions(suffix):
        return layers.AddPositionEmbs(
            embedding.grid_size,
            class_token=has_class_token,
            kind=position_embedding,
            name=f"posembed_{suffix}",
        )

    learned = position_embedding in ("learned_1d", "learned_2d")
    if learned and position_placement != "every_layer":
        shared_positions = add_positions("input")
    if learned and position_placement == "stem":
        x = shared_positions(x)
    if dropout_rate:
        x = keras.layers.Dropout(dropout_rate, name="posembed_dropout")(x)

    # Equations 2 and 3: the encoder.
    for i in range(num_layers):
        if learned and position_placement == "every_layer":
            x = add_positions(str(i))(x)
        elif learned and position_placement == "every_layer_shared":
            x = shared_positions(x)
        x = layers.TransformerBlock(
            num_heads,
            mlp_dim,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            drop_path_rate=drop_path_rate * i / max(1, num_layers - 1),
            remat=remat,
            gelu_approximate=gelu_approximate,
            layer_norm_epsilon=layer_norm_epsilon,
            relative_positions=position_embedding == "relative",
            name=f"encoderblock_{i}",
        )(x)
    norm = keras.layers.LayerNormalization(
        epsilon=layer_norm_epsilon, name="encoder_norm"
    )
    if classifier == "token_gap":
        x = norm(ops.mean(x[:, 1:], axis=1))  # [B, D]
    elif classifier == "gap_norm":
        x = norm(ops.mean(x, axis=1))  # [B, D]
    else:
        x = norm(x)  # [B, T, D]

    # Equation 4: the representation y, then the head.
    if classifier == "token":
        x = x[:, 0]  # [B, D]
    elif classifier == "gap":
        x = ops.mean(x, axis=1)  # [B, D]
    elif classifier == "unpooled":
        x = keras.layers.Reshape((*embedding.grid_size, hidden_size))(x)
    if include_top:
        if representation_size:
            x = keras.layers.Dense(
                representation_size, activation="tanh", name="pre_logits"
            )(x)
        x = layers.ClassificationHead(
            classes,
            labels=labels,
            activation=classifier_activation,
            bias_initializer=keras.initializers.Constant(head_bias_init),
            name="head",
            dtype="float32",
        )(x)
    model = keras.Model(images, x, name=name or "ViT")

    if source is not None:
        layout = table.Layout(
            num_layers=num_layers,
            num_heads=num_heads,
            resnet_units=resnet_units,
            classifier=classifier,
            representation=include_top and bool(representation_size),
            head=keep_head,
        )
        load.fill(
            model,
            source,
            layout,
            grid_size=embedding.grid_size,
            resize_patches=resize_patches,
        )
        if keep_head:
            load.warn_if_zero_head(model, source)
    return model


def _keywords():
    """Returns the keywords of every constructor."""
    return [name for name in inspect.signature(ViT).parameters][:-1]


def _constructor(variant, description):
    """Makes the constructor of a variant: ViT with the sizes of its row."""

    def constructor(
        weights: str | None = None,
        include_top: bool = True,
        classes: int | None = None,
        input_shape: tuple[int, int, int] | None = None,
        classifier_activation: str | None = None,
        include_preprocessing: bool = True,
        name: str | None = None,
        **architecture,
    ) -> keras.Model:
        known = _keywords()
        unknown = [key for key in architecture if key not in known]
        arguments.refuse_unknown(variant, unknown, known)
        if weights is not None:
            weights = registry.open_weights(
                weights, variant, architecture.get("position_grid")
            )
        return ViT(
            weights=weights,
            include_top=include_top,
            classes=classes,
            input_shape=input_shape,
            classifier_activation=classifier_activation,
            include_preprocessing=include_preprocessing,
            name=name or variant,
            **{**VARIANTS[variant], **architecture},
        )

    constructor.__name__ = constructor.__qualname__ = variant
    constructor.__doc__ = f"""{description}

    Args:
        weights: Name of released weights ("imagenet21k",
            "imagenet21k+imagenet2012", "augreg", ...; see
            `keras_vit.list_weights("{variant}")`), any checkpoint that
            `keras_vit.ViT` takes, or None for random weights.
        include_top, classes, input_shape, classifier_activation,
            include_preprocessing, name: See `keras_vit.ViT`.
        **architecture: Any other argument of `keras_vit.ViT`, in place of
            the variant's own: {VARIANTS[variant]}.

    Input shape: `[B, H, W, C]`, pixels in [0, 255], uint8 or float.
    Output shape: `[B, classes]`, logits.

    Raises:
        ValueError: As `keras_vit.ViT` does.
    """
    return constructor


ViTTi16 = _constructor("ViTTi16", "ViT-Ti/16, of the augreg release.")
ViTS32 = _constructor("ViTS32", "ViT-S/32, of the augreg release.")
ViTS16 = _constructor("ViTS16", "ViT-S/16, of the augreg release.")
ViTB32 = _constructor("ViTB32", "ViT-B/32 of Table 1.")
ViTB16 = _constructor("ViTB16", "ViT-B/16 of Table 1.")
ViTB8 = _constructor("ViTB8", "ViT-B/8, of the augreg release.")
ViTL32 = _constructor("ViTL32", "ViT-L/32 of Table 1.")
ViTL16 = _constructor("ViTL16", "ViT-L/16 of Table 1.")
ViTH14 = _constructor("ViTH14", "ViT-H/14 of Table 1.")
RViTTi16 = _constructor("RViTTi16", "R+ViT-Ti/16: a ResNet's root, ViT-Ti.")
R26ViTS32 = _constructor("R26ViTS32", "R26+ViT-S/32, a hybrid.")
R26ViTB32 = _constructor("R26ViTB32", "R26+ViT-B/32, a hybrid.")
R50ViTB16 = _constructor("R50ViTB16", "R50+ViT-B/16, a hybrid.")
R50ViTB32 = _constructor("R50ViTB32", "R50+ViT-B/32 of Table 6, a hybrid.")
R50ViTL16 = _constructor("R50ViTL16", "R50+ViT-L/16 of Table 6, a hybrid.")
R50ViTL32 = _constructor("R50ViTL32", "R50+ViT-L/32, a hybrid.")
