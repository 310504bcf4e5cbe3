"""The training step of the ViT's authors, from a checkout of their code.

Their model is imported from the path that the user gives; none of their code is
part of this project. AdamW is Optax', put together as in big_vision/optax.py.
"""

import dataclasses
import functools
import importlib
import importlib.util
import math
import pathlib
import sys
import time
import types
import typing

from tools.plan_tpu import compiler, slices

# Repository of google-research: the file of its ViT.
FILES = {
    "big_vision": "big_vision/models/vit.py",
    "vision_transformer": "vit_jax/models_vit.py",
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What both training steps have in common.

    Attributes:
        architecture: A keras_vit.models.vit.ViTConfig.
        representation_size: Width of the tanh layer before the head; 0 without.
        dtype: "bfloat16" or "float32", of products and their results.
        loss: A function of labels and logits.
        learning_rate: A function of the step.
        weight_decay: Of kernels, multiplied by the learning rate.
        clip_norm: Global norm at which the gradient is clipped; 0 never.
    """

    architecture: typing.Any
    representation_size: int
    num_classes: int
    image_shape: tuple[int, int, int]
    dtype: str
    loss: typing.Any
    learning_rate: typing.Any
    weight_decay: float
    clip_norm: float


def load(checkout: str) -> tuple[str, types.ModuleType]:
    """Return the repository of a checkout and the module of its ViT."""
    root = pathlib.Path(checkout).expanduser().resolve()
    found = [name for name, file in FILES.items() if (root / file).is_file()]
    if not found:
        raise ValueError(
            "--compare must be a checkout of google-research/big_vision or "
            f"google-research/vision_transformer, with {FILES['big_vision']} "
            f"or {FILES['vision_transformer']}. Received: {checkout!r}"
        )
    sys.path.insert(0, str(root))
    file = FILES[found[0]]
    try:
        importlib.import_module("optax")
        module = file.removesuffix(".py").replace("/", ".")
        return found[0], importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{file} of --compare needs the package {error.name!r}, which is "
            "not installed: pip install flax optax and what the authors' "
            "requirements.txt lists"
        ) from None


def model(name: str, module: types.ModuleType, settings: Settings):
    """Return the authors' flax module of the same architecture."""
    shape, dtype = settings.architecture, settings.dtype
    _check(name, settings)
    if name == "big_vision":
        arguments = dict(
            patch_size=_pair(shape.patch_size),
            width=shape.hidden_size,
            depth=shape.num_layers,
            mlp_dim=shape.mlp_dim,
            num_heads=shape.num_heads,
            dropout=shape.dropout_rate,
            rep_size=settings.representation_size or False,
            pool_type={"token": "tok", "gap": "gap"}[shape.pooling],
        )
        if dtype != "float32":
            arguments["dtype_mm"] = dtype
        try:
            return module.Model(settings.num_classes, **arguments)
        except TypeError as error:
            raise ValueError(
                "big_vision's Model of this checkout does not take an argument "
                f"that it has had since 2024: {error}. Update the checkout"
            ) from None
    return module.VisionTransformer(
        num_classes=settings.num_classes,
        patches=types.SimpleNamespace(size=_pair(shape.patch_size)),
        hidden_size=shape.hidden_size,
        transformer=dict(
            num_layers=shape.num_layers,
            mlp_dim=shape.mlp_dim,
            num_heads=shape.num_heads,
            dropout_rate=shape.dropout_rate,
            attention_dropout_rate=shape.attention_dropout_rate,
        ),
        representation_size=settings.representation_size or None,
        pooling=shape.pooling,
    )


def compile_step(
    model, settings: Settings, tpu: slices.Slice, batch_size: int
) -> compiler.Program:
    """Compile one data-parallel training step of the authors' flax model.

    The batch is that of all devices. May raise compiler.DoesNotFit.
    """
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from keras_vit.distribution import tpu_compiler

    mesh = jax.sharding.Mesh(np.array(slices.devices(tpu)), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("data"))

    def place(tree, sharding):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            tree,
        )

    batch = (
        jax.ShapeDtypeStruct((batch_size, *settings.image_shape), "float32"),
        jax.ShapeDtypeStruct((batch_size, settings.num_classes), "float32"),
    )
    key = jax.ShapeDtypeStruct((2,), "uint32")
    optimizer = adamw(settings)
    initialize = functools.partial(model.init, train=False)
    parameters = jax.eval_shape(initialize, key, batch[0])["params"]
    state = (parameters, jax.eval_shape(optimizer.init, parameters))
    start = time.monotonic()
    lowered = jax.jit(
        make_step(model, optimizer, settings.loss),
        donate_argnums=0,
        out_shardings=(everywhere, everywhere),
    ).lower(
        place(state, everywhere), place(batch, divided), place(key, everywhere)
    )
    # The same for both.
    options = tpu_compiler.options(tpu.generation)
    compiled = compiler.compile_lowered(lowered, options)
    leaves = jax.tree.leaves(state)
    return compiler.read(
        compiled,
        tpu,
        parameters=sum(math.prod(x.shape) for x in jax.tree.leaves(parameters)),
        state_bytes=sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves),
        compile_seconds=time.monotonic() - start,
    )


def _check(name, settings):
    """Refuse what the authors' code cannot express."""
    shape = settings.architecture
    same = "drop_path_rate position_embedding position_placement resnet_depths "
    same += "gelu_approximate layer_norm_epsilon"
    different = [
        field.name
        for field in dataclasses.fields(shape)
        if field.name in same.split()
        and getattr(shape, field.name) != field.default
    ]
    if shape.pooling not in ("token", "gap"):
        different.append("pooling")
    if name == "big_vision" and shape.attention_dropout_rate:
        different.append("attention_dropout_rate")
    if different:
        raise ValueError(
            f"The ViT of {name} has no {', '.join(different)} as configured, "
            "so that there is nothing to compare"
        )
    if name == "vision_transformer" and settings.dtype != "float32":
        raise ValueError(
            "The ViT of vision_transformer computes in float32; compare it "
            "with --config.model.dtype_policy=float32"
        )


def adamw(settings: Settings):
    """Return their AdamW, as Optax' parts."""
    import jax
    import optax

    def kernels(parameters):
        return jax.tree.map_with_path(
            lambda path, _: path[-1].key == "kernel", parameters
        )

    parts = [
        optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8),
        optax.add_decayed_weights(settings.weight_decay, kernels),
        optax.scale_by_schedule(settings.learning_rate),
        optax.scale(-1.0),
    ]
    if settings.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(settings.clip_norm))
    return optax.chain(*parts)


def make_step(model, optimizer, loss) -> typing.Callable:
    """Return a function of the state, a batch and a key: state and loss."""
    import jax
    import optax

    def step(state, batch, key):
        parameters, slots = state
        images, labels = batch

        def mean_loss(parameters):
            variables, rngs = {"params": parameters}, {"dropout": key}
            logits = model.apply(variables, images, train=True, rngs=rngs)
            if isinstance(logits, tuple):  # and, in big_vision, activations
                logits = logits[0]
            return loss(labels, logits)

        value, gradients = jax.value_and_grad(mean_loss)(parameters)
        updates, slots = optimizer.update(gradients, slots, parameters)
        return (optax.apply_updates(parameters, updates), slots), value

    return step


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)
