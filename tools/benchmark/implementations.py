"""Makes the functions that are timed: ours and those of other libraries.

All have random weights, scaled images, a head of 1000 classes and no dropout,
and return when the result is in the host's memory.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

import keras_vit
from tools.benchmark import cases, tasks
from tools.benchmark.cases import Case
from tools.plan_tpu import authors

CLASSES = 1000
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.05

# Our constructor -> the model of timm, which takes other image sizes.
TIMM = {
    "ViTTi16": "vit_tiny_patch16_224",
    "ViTS32": "vit_small_patch32_224",
    "ViTS16": "vit_small_patch16_224",
    "ViTB32": "vit_base_patch32_224",
    "ViTB16": "vit_base_patch16_224",
    "ViTB8": "vit_base_patch8_224",
    "ViTL32": "vit_large_patch32_224",
    "ViTL16": "vit_large_patch16_224",
    "ViTH14": "vit_huge_patch14_224",
    "R50ViTB16": "vit_base_r50_s16_224",
    "R50ViTL32": "vit_large_r50_s32_224",
    "MixerB16": "mixer_b16_224",
    "MixerL16": "mixer_l16_224",
}
# Those without an argument for the image size: they take any.
BIT = {
    "BiTR50x1": "resnetv2_50x1_bit",
    "BiTR101x1": "resnetv2_101x1_bit",
    "BiTR152x2": "resnetv2_152x2_bit",
}
TORCHVISION = {"MViTB16x4": "mvit_v1_b", "MViTv2S16x4": "mvit_v2_s"}


def available(name: str, model: keras.Model, case: Case) -> bool:
    """Return whether an implementation is installed and has the model."""
    library = cases.library(name)
    if importlib.util.find_spec(library) is None:
        return False
    if library == "keras_vit":
        # JAX compiles always.
        return name == library or keras.backend.backend() != "jax"
    if library == "timm":
        return case.model in TIMM | BIT
    if library == "torchvision":
        return case.model in TORCHVISION
    if case.model in tasks.MODELS:
        return library == "transformers"
    if library == "big_vision" and keras.backend.backend() != "jax":
        return False
    return (
        model.family == "vit"
        and model.architecture.resnet_depths is None
        and model.architecture.pooling == "token"
    )


def ours(case: Case, dtype: str | None = None) -> keras.Model:
    """Return our model of a case."""
    side = case.image_size
    if case.model in tasks.MODELS:
        return tasks.ours(case.model, side, dtype or case.dtype_policy)
    constructor = getattr(keras_vit, case.model)
    return constructor(
        input_shape=(side, side, 3) if side else None,
        classes=CLASSES,
        include_preprocessing=False,
        dtype=dtype or case.dtype_policy,
    )


def make(name: str, model: keras.Model, case: Case) -> Callable:
    """Return a function that runs one call of an implementation."""
    rng = np.random.default_rng(0)
    shape = (case.batch_size, *model.input_shape[1:])
    images = rng.standard_normal(shape, "float32")
    labels: Any = rng.integers(0, CLASSES, case.batch_size)
    if case.model in tasks.MODELS:
        labels = tasks.targets(case.model, shape)
    library = cases.library(name)
    is_compiled = name != library
    if library in ("keras_vit", "keras_hub"):
        adam = keras.optimizers.AdamW
        if library == "keras_vit":
            # As the recipes do.
            adam, made = keras_vit.training.fuse_adam(adam), ours(case)
        else:
            made = _keras_hub(model, case)
        return _keras_call(made, adam, case, images, labels, is_compiled)
    if library == "big_vision":
        return _flax_call(model, case, images, labels)
    module = globals()[f"_{library}"](model, case)
    return _torch_call(module, case, images, labels, is_compiled)


def importable(names: Iterable[str], about: str = "") -> list[str]:
    """Import implementations, so that their memory is not measured.

    Returns:
        The names of those that can be; stderr says why others are left out.
    """
    found = []
    for name in names:
        library = cases.library(name)
        try:
            module = importlib.import_module(library)
            if library == "transformers":
                module.ViTForImageClassification  # noqa: B018, is imported now
        except Exception as error:  # such as torchvision's for another PyTorch
            why = f"since {library} cannot be imported: {error}"
            print(f"{about}{name} is left out, {why}", file=sys.stderr)
            continue
        if library in ("timm", "transformers", "torchvision"):
            import torch

            # Starts the threads, and loads the kernels of products.
            ones = torch.ones(64, 64, device=_device())
            ones @ ones  # noqa: B018
        found.append(name)
    return found


def _keras_call(model, adam, case, images, labels, is_compiled):
    jit_compile = True if is_compiled else "auto"
    if is_compiled and keras.backend.backend() == "torch":
        keras_vit.models.compile_blocks(model)
        jit_compile = "auto"
    if case.task == "inference":
        model.compile(jit_compile=jit_compile)
        return lambda: model.predict_on_batch(images)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if isinstance(labels, dict):
        model, loss = tasks.trained(model), None
    model.compile(
        adam(LEARNING_RATE, weight_decay=WEIGHT_DECAY),
        loss,
        jit_compile=jit_compile,
    )
    return lambda: model.train_on_batch(images, labels)


def _keras_hub(model, case):
    import keras_hub

    architecture = model.architecture
    backbone = keras_hub.models.ViTBackbone(
        image_shape=model.input_shape[1:],
        patch_size=architecture.patch_size,
        num_layers=architecture.num_layers,
        num_heads=architecture.num_heads,
        hidden_dim=architecture.hidden_size,
        mlp_dim=architecture.mlp_dim,
        dtype=case.dtype_policy,
    )
    return keras_hub.models.ViTImageClassifier(
        backbone,
        num_classes=CLASSES,
        preprocessor=None,
        activation="linear",
        dtype=case.dtype_policy,
    )


def _flax_call(model, case, images, labels):
    """Return a call of big_vision's ViT, a checkout on the path of modules."""
    import jax

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    settings = authors.Settings(
        architecture=model.architecture,
        representation_size=0,
        num_classes=CLASSES,
        image_shape=images.shape[1:],
        dtype=case.precision,
        loss=loss,
        learning_rate=lambda step: LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        clip_norm=0.0,
    )
    vit = importlib.import_module("big_vision.models.vit")
    flax = authors.model("big_vision", vit, settings)
    key = jax.random.key(0)
    parameters = jax.jit(flax.init)(key, images)["params"]
    if case.task == "inference":
        dtype = case.precision
        parameters = jax.tree.map(lambda x: x.astype(dtype), parameters)
        infer = jax.jit(lambda p, x: flax.apply({"params": p}, x)[0])
        return lambda: np.asarray(infer(parameters, images), "float32")
    optimizer = authors.adamw(settings)
    step = jax.jit(authors.make_step(flax, optimizer, loss), donate_argnums=0)
    state = parameters, optimizer.init(parameters)

    def train():
        nonlocal state
        state, value = step(state, (images, labels), key)
        return float(value)

    return train


def _timm(model, case):
    import timm

    name = (TIMM | BIT)[case.model]
    size = {} if case.model in BIT else dict(img_size=model.image_shape[:2])
    return timm.create_model(name, num_classes=CLASSES, **size)


def _torchvision(model, case):
    from torchvision.models import video

    return getattr(video, TORCHVISION[case.model])(
        num_classes=CLASSES, dropout=0.0, stochastic_depth_prob=0.0
    )


def _transformers(model, case):
    import transformers

    if case.model in tasks.MODELS:
        return tasks.theirs(case.model, case.image_size)
    architecture = model.architecture
    config = transformers.ViTConfig(
        image_size=model.image_shape[0],
        patch_size=architecture.patch_size,
        hidden_size=architecture.hidden_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        intermediate_size=architecture.mlp_dim,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CLASSES,
    )
    return transformers.ViTForImageClassification(config)


def _device():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _torch_call(module, case, images, labels, is_compiled):
    """Return the plain loop's body for a module of PyTorch."""
    import torch

    device = _device()
    # [B, C, T, H, W] from [B, T, H, W, C] of videos
    images = torch.from_numpy(np.moveaxis(images, -1, 1).copy())
    is_dense = isinstance(labels, dict)
    targets: Any = (
        tasks.as_theirs(labels) if is_dense else torch.from_numpy(labels)
    )
    is_bfloat16 = case.precision == "bfloat16"
    module = module.to(device).train(case.task == "training")
    if is_bfloat16 and case.task == "inference":
        module, images = module.bfloat16(), images.bfloat16()
    run = torch.compile(module) if is_compiled else module
    if case.task == "inference":

        def infer():
            with torch.inference_mode():
                return _logits(run(images.to(device))).float().cpu().numpy()

        return infer

    optimizer = torch.optim.AdamW(
        module.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )

    def train():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=is_bfloat16):
            if is_dense:
                loss = run(images.to(device), **targets).loss
            else:
                logits = _logits(run(images.to(device)))
        if not is_dense:
            loss = torch.nn.functional.cross_entropy(
                logits.float(), targets.to(device)
            )
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


def _logits(output):
    for name in ("logits", "class_queries_logits"):
        output = getattr(output, name, output)
    return output
