"""Trains a model on labelled images, from released weights or from scratch.

python -m recipes.finetune
python -m recipes.finetune --config.dataset=path/to/images --workdir=runs/mine
python -m recipes.finetune --config=recipes/configs/finetune.py:ViTB16,cifar10
"""

import contextlib
import dataclasses
import difflib
import pathlib
import re
import shlex
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit import data
from keras_vit.inspection import figures
from recipes import cli
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "finetune.py"
OPTIMIZERS = ("sgd", "adam")
# What model="ViT" is where `architecture` does not say: small enough to be
# trained from scratch on a processor.
SMALL = dict(hidden_size=96, num_layers=4, num_heads=6, mlp_dim=192)
# Images in predictions.png, and kept in examples/.
NUM_SHOWN = 12


@dataclasses.dataclass(kw_only=True, slots=True)
class Architecture:
    """What to change in the model; 0 or "" keeps what it has.

    Attributes:
        patch_size: Pixels per side of a patch. model="ViT" has the largest
            that leaves 8 patches a side, but no less than 4 pixels.
        hidden_size: Width D of the tokens.
        num_layers: Number of Transformer blocks.
        num_heads: Attention heads.
        mlp_dim: Width of the MLPs' hidden layer.
        dropout_rate: Dropout after the position embeddings and in blocks.
        attention_dropout_rate: Dropout of the attention weights.
        drop_path_rate: Stochastic depth of the last block.
        representation_size: Width of the tanh layer before the head.
        classifier: "token" or "gap".
        position_embedding: "learned_1d", "learned_2d", "relative" or "none".
        position_placement: "stem", "every_layer" or "every_layer_shared".
    """

    patch_size: int = 0
    hidden_size: int = 0
    num_layers: int = 0
    num_heads: int = 0
    mlp_dim: int = 0
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    drop_path_rate: float = 0.0
    representation_size: int = 0
    classifier: str = ""
    position_embedding: str = ""
    position_placement: str = ""


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """What to train, on what, and how. Off is 0 or "".

    Attributes:
        model: A constructor of keras_vit, such as "ViTB16"; "ViT" is a small
            model for training from scratch.
        architecture: What to change in it.
        weights: Path of a checkpoint or name of released weights.
        dataset: "digits", a folder of images (`train/class/*` and
            `test/class/*`, or `class/*`), an npz file, or a name of TFDS.
        train_split: TFDS split to train on; "" is "train".
        eval_split: TFDS split to evaluate on; "" is "test" or "validation".
        eval_fraction: Share of each class held out where the data set has no
            part of its own for evaluation.
        data_dir: Where TFDS keeps prepared data; "" is its default.
        manual_dir: Where TFDS finds archives that are fetched by hand.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do about files that do not decode: "error", or "skip"
            to look for them first and leave them out.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the data set's own size, or 224 if it has none.
        channels: 1 or 3; 0 is the data set's own number, or 3.
        crop: "inception" (5 to 100 % of the area), "pad" (zeros around, then
            a random crop) or "none".
        pad: Pixels on each side for "pad"; 0 is an eighth of the shorter
            side.
        flip: Whether to flip left to right, half of the time.
        batch_size: Images in each step.
        total_steps: Number of steps; 0 leaves it to `num_epochs`.
        num_epochs: Passes over the training images.
        warmup_steps: Steps in which the learning rate rises linearly from 0;
            at most a fifth of all. Then it falls to 0 as a cosine.
        base_lr: The highest learning rate.
        optimizer: "sgd" or "adam".
        momentum: Momentum of "sgd".
        weight_decay: Decoupled decay of all kernels, times the learning rate.
        clip_norm: Largest global norm of the gradient.
        label_smoothing: Share of each label spread over all classes.
        ema_momentum: Momentum of Polyak averaging, such as 0.99. Then the
            averaged weights are evaluated and saved.
        eval_every: Steps between evaluations; 0 is once for each pass over
            the training images.
        dtype_policy: "float32", "mixed_bfloat16", ...
        seed: Of split, order, augmentation, initial weights and dropout.
    """

    model: str = "ViT"
    architecture: Architecture = dataclasses.field(default_factory=Architecture)
    weights: str = ""
    dataset: str = "digits"
    train_split: str = ""
    eval_split: str = ""
    eval_fraction: float = 0.2
    data_dir: str = ""
    manual_dir: str = ""
    try_gcs: bool = False
    broken: str = "error"
    image_size: tuple[int, ...] = (0,)
    channels: int = 0
    crop: str = "inception"
    pad: int = 0
    flip: bool = False
    batch_size: int = 512
    total_steps: int = 0
    num_epochs: int = 0
    warmup_steps: int = 500
    base_lr: float = 0.01
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.0
    ema_momentum: float = 0.0
    eval_every: int = 0
    dtype_policy: str = "float32"
    seed: int = 0


def run(config: Config, workdir: str = "") -> dict[str, float]:
    """Trains, keeps the best model, and draws what it does.

    Usage:
        python -m recipes.finetune
            Scikit-learn's handwritten digits, from scratch.
        python -m recipes.finetune --config.dataset=path/to/images
            A small model from scratch on your own images.
        python -m recipes.finetune \\
            --config=recipes/configs/finetune.py:ViTB16,path/to/images
            Released weights on your own images, or on a data set of TFDS.

    The workdir, "runs/" and the data set's name unless given, receives
    config.json, metrics.csv, tensorboard/, best.keras (the highest evaluation
    accuracy), curves.png, predictions.png and examples/.

    Returns:
        Loss and accuracy of best.keras on the evaluation images.
    """
    _check(config)
    workdir = pathlib.Path(
        workdir or workdirs.default(config.model, config.dataset)
    )
    workdirs.refuse_other_config(workdir, config)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.dtype_policy)

    # Data.
    train, evaluation = data.load(
        config.dataset,
        train_split=config.train_split,
        eval_split=config.eval_split,
        eval_fraction=config.eval_fraction,
        seed=config.seed,
        data_dir=config.data_dir,
        manual_dir=config.manual_dir,
        try_gcs=config.try_gcs,
        broken=config.broken,
    )
    data.warn_if_scaled(train)
    skipped = len(train.skipped) + len(evaluation.skipped)
    image_size = _image_size(config, train)
    channels = config.channels or (
        train.image_shape[-1] if train.image_shape else 3
    )
    batches = dict(
        batch_size=config.batch_size, image_size=image_size, channels=channels
    )
    train_batches = data.train_batches(
        train,
        **batches,
        crop=config.crop,
        pad=config.pad or min(image_size) // 8,
        flip=config.flip,
        seed=config.seed,
    )
    eval_batches = data.eval_batches(evaluation, **batches)

    # Model.
    model_arguments = _model_arguments(config, image_size)
    model = getattr(keras_vit, config.model)(
        weights=config.weights or None,
        input_shape=(*image_size, channels),
        labels=train.class_names,
        **model_arguments,
    )

    # Optimizer.
    steps_per_epoch = max(1, train.num_examples // config.batch_size)
    total_steps = config.total_steps or max(
        1, config.num_epochs * train.num_examples // config.batch_size
    )
    eval_every = min(config.eval_every or steps_per_epoch, total_steps)
    warmup_steps = min(config.warmup_steps, total_steps // 5)
    schedule = _schedule(config, total_steps, warmup_steps)
    optimizer = _optimizer(config, schedule, model)

    # Compile.
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )

    # Callbacks. Everything cheap has been checked: the workdir is written.
    derived = dict(
        model=model_arguments,
        num_parameters=model.count_params(),
        image_size=image_size,
        channels=channels,
        classes=len(train.class_names),
        train_images=train.num_examples,
        eval_images=evaluation.num_examples,
        skipped_images=skipped,
        total_steps=total_steps,
        warmup_steps=warmup_steps,
        eval_every=eval_every,
        backend=keras.backend.backend(),
        keras=keras.__version__,
    )
    workdirs.write_config(workdir, config, derived)
    callbacks = [
        _Steps(total_steps, eval_every),
        keras.callbacks.TerminateOnNaN(),
        # Callbacks after this one see the averaged weights.
        *(
            [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
            if config.ema_momentum
            else []
        ),
        keras.callbacks.CSVLogger(workdir / "metrics.csv"),
        keras.callbacks.TensorBoard(
            str(workdir / "tensorboard"), write_graph=False
        ),
        keras.callbacks.ModelCheckpoint(
            workdir / "best.keras",
            monitor="val_accuracy",
            mode="max",
            save_best_only=True,
        ),
    ]

    # Fit and evaluate.
    print(
        f"{config.model}, {model.count_params():,} parameters, "
        f"{image_size[0]}x{image_size[1]}x{channels} pixels; "
        f"{train.num_examples} images of {len(train.class_names)} classes to "
        f"train on, {evaluation.num_examples} to evaluate"
        + (f", {skipped} broken files left out" if skipped else "")
        + f"; {total_steps} steps of {config.batch_size}, evaluated every "
        f"{eval_every}.",
        flush=True,
    )
    with _naming_broken_files(train, evaluation):
        history = model.fit(
            data.as_pairs(train_batches),
            steps_per_epoch=eval_every,
            epochs=-(-total_steps // eval_every),
            validation_data=data.as_pairs(eval_batches),
            callbacks=callbacks,
            shuffle=False,  # the batches are already
            verbose="auto" if sys.stdout.isatty() else 2,
        ).history
        if not np.isfinite(history["loss"][-1]):
            raise ValueError(
                "`base_lr` must be low enough for training to converge. "
                f"Received: base_lr={config.base_lr}, with which the loss "
                f"became {history['loss'][-1]} within {history['step'][-1]} "
                "steps. Lower it, or set `clip_norm` or `warmup_steps`."
            )
        best = keras.models.load_model(workdir / "best.keras")
        results = best.evaluate(
            data.as_pairs(eval_batches), return_dict=True, verbose=0
        )
        # Images that stand evenly spaced, so that all classes show.
        images, labels = _every_nth(
            eval_batches, max(1, evaluation.num_examples // NUM_SHOWN)
        )

    # Figures.
    figures.plot_curves(workdir / "metrics.csv", workdir / "curves.png")
    probabilities = _softmax(best.predict(images, verbose=0))
    predicted = probabilities.argmax(axis=-1)
    figures.plot_attention(
        images,
        keras_vit.inspection.attention_rollout(best, images),
        [
            f"{train.class_names[guess]} {probability[guess]:.0%}"
            + ("" if guess == label else f", not {train.class_names[label]}")
            for guess, label, probability in zip(
                predicted, labels, probabilities, strict=True
            )
        ],
        workdir / "predictions.png",
        right=predicted == labels,
    )
    examples = _write_examples(
        images, [train.class_names[label] for label in labels], workdir
    )

    # Where everything is.
    print(
        f"\nbest.keras: {results['accuracy']:.2%} of {evaluation.num_examples} "
        f"evaluation images right (the last evaluation: "
        f"{history['val_accuracy'][-1]:.2%})."
    )
    width = len(str(workdir / "predictions.png"))
    for name, description in (
        ("best.keras", "the model, best at evaluation"),
        ("curves.png", "loss, accuracy and learning rate"),
        ("predictions.png", "images, what the model saw, and where"),
        ("metrics.csv", "the numbers"),
        ("config.json", "what was run"),
        ("tensorboard", f"tensorboard --logdir {workdir / 'tensorboard'}"),
    ):
        print(f"  {str(workdir / name):{width}}  {description}")
    command = ["python", "-m", "recipes.predict", str(workdir / "best.keras")]
    command += examples[:3] or ["image.jpg"]
    command += ["--attention", str(workdir / "attention.png")]
    print(f"Use it:\n  {shlex.join(command)}", flush=True)
    return results


def _check(config):
    """Refuses, before any work, what nothing below refuses clearly."""
    names = ["ViT", *keras_vit.list_models()]
    if config.model not in names:
        near = difflib.get_close_matches(config.model, names, n=3, cutoff=0.4)
        raise ValueError(
            "`model` must be a constructor of keras_vit. Received: "
            f"model={config.model!r}. Nearest names: {near or names}"
        )
    if config.optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be one of {OPTIMIZERS}. "
            f"Received: optimizer={config.optimizer!r}"
        )
    if config.crop not in data.batches.CROPS:
        raise ValueError(
            f"`crop` must be one of {data.batches.CROPS}. "
            f"Received: crop={config.crop!r}"
        )
    if config.architecture.classifier == "unpooled":
        raise ValueError(
            "`architecture.classifier` must give one answer for an image, "
            "'token' or 'gap'. Received: 'unpooled'"
        )
    for name, low, high in (
        ("batch_size", 1, None),
        ("total_steps", 0, None),
        ("num_epochs", 0, None),
        ("warmup_steps", 0, None),
        ("eval_every", 0, None),
        ("pad", 0, None),
        ("channels", 0, None),
        ("weight_decay", 0, None),
        ("clip_norm", 0, None),
        ("momentum", 0, 1),
        ("ema_momentum", 0, 1),
        ("label_smoothing", 0, 1),
    ):
        value = getattr(config, name)
        if not low <= value or (high is not None and value >= high):
            raise ValueError(
                f"`{name}` must be at least {low}"
                + ("" if high is None else f" and below {high}")
                + f". Received: {name}={value}"
            )
    if not 0 < config.base_lr < float("inf"):
        raise ValueError(
            "`base_lr` must be a positive number. "
            f"Received: base_lr={config.base_lr}"
        )
    if not config.total_steps and not config.num_epochs:
        raise ValueError(
            "`total_steps` or `num_epochs` must be positive. Received: "
            "total_steps=0, num_epochs=0"
        )


def _image_size(config, source):
    """Returns (height, width) in pixels."""
    size = config.image_size
    if len(size) == 1:
        size = size * 2
    if len(size) != 2 or not all(isinstance(n, int) and n >= 0 for n in size):
        raise ValueError(
            "`image_size` must be one or two numbers of pixels, height and "
            f"width. Received: image_size={config.image_size}"
        )
    if not any(size):
        return (
            tuple(source.image_shape[:2]) if source.image_shape else (224,) * 2
        )
    return size


def _model_arguments(config, image_size):
    """Returns what the constructor is given of the architecture."""
    arguments = dataclasses.asdict(config.architecture)
    arguments = {name: value for name, value in arguments.items() if value}
    if config.model != "ViT" or config.weights:
        return arguments
    fitting = [
        n
        for n in range(1, min(image_size) + 1)
        if not any(side % n for side in image_size)
    ]
    patch_size = max(n for n in fitting if n == 1 or min(image_size) // n >= 8)
    if patch_size < 4:
        patch_size = next((n for n in fitting if n >= 4), patch_size)
    return dict(patch_size=patch_size, **SMALL) | arguments


def _schedule(config, total_steps, warmup_steps):
    """Linear warm-up from 0, then a cosine to 0 at the last step."""
    if not warmup_steps:
        return keras.optimizers.schedules.CosineDecay(
            config.base_lr, total_steps
        )
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        total_steps - warmup_steps,
        warmup_target=config.base_lr,
        warmup_steps=warmup_steps,
    )


def _optimizer(config, schedule, model):
    arguments = dict(
        learning_rate=schedule,
        weight_decay=config.weight_decay or None,
        global_clipnorm=config.clip_norm or None,
        use_ema=config.ema_momentum > 0,
        ema_momentum=config.ema_momentum,
    )
    if config.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(momentum=config.momentum, **arguments)
    else:
        optimizer = keras.optimizers.Adam(**arguments)
    optimizer.exclude_from_weight_decay(
        [v for v in model.trainable_variables if v.name != "kernel"]
    )
    return optimizer


class _Steps(keras.callbacks.Callback):
    """Stops at exactly the last step; logs step and learning rate.

    Keras counts in epochs, here the stretches between evaluations; where
    they do not divide the steps, the last stretch is shorter.
    """

    def __init__(self, total_steps, eval_every):
        super().__init__()
        self.total_steps = total_steps
        self.eval_every = eval_every
        self.step = 0

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.step == self.total_steps:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        logs["step"] = self.step
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)


@contextlib.contextmanager
def _naming_broken_files(*sources):
    """Turns a decoding error, which names no file, into one that does."""
    try:
        yield
    except tf.errors.OpError:
        for source in sources:
            message = data.explain_broken(source)
            if message:
                raise ValueError(message) from None
        raise


def _every_nth(batches, n):
    """Returns some images as uint8 and their labels, evenly spaced."""
    chosen = batches.unbatch().shard(n, 0).take(NUM_SHOWN)
    images, labels = zip(
        *((x["images"], x["labels"]) for x in chosen.as_numpy_iterator()),
        strict=True,
    )
    images = np.clip(np.rint(images), 0, 255).astype("uint8")
    return images, np.argmax(labels, axis=-1)


def _softmax(logits):
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits))


def _write_examples(images, names, workdir):
    """Writes PNGs to try the model on; returns their paths."""
    if images.shape[-1] not in (1, 3):
        return []
    (workdir / "examples").mkdir()
    paths = []
    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        name = re.sub(r"[^\w-]+", "_", name)
        paths.append(str(workdir / "examples" / f"{i}-{name}.png"))
        tf.io.write_file(paths[-1], tf.io.encode_png(image))
    return paths


if __name__ == "__main__":
    cli.main(run, DEFAULT_CONFIG)
