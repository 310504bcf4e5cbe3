"""Trains two towers, of images and of texts, on pairs; see `finetune.run`."""

import collections
import dataclasses
import functools
import pathlib
import re
import shlex

import keras
import numpy as np

import keras_vit
from keras_vit import data, evaluation, text, training
from keras_vit.inspection import figures
from recipes import (
    begin,
    checks,
    experiment,
    fitting,
    inputs,
    scored,
    training_step,
)
from recipes import workdir as workdirs

# Images in predictions.png and in examples/.
NUM_SHOWN = 12
# What pairs do not have; another value than the default is refused.
UNUSED = (
    *("model.head_bias", "optim.loss", "optim.label_smoothing"),
    *("evaluation.fewshot_dataset", "run.micro_batches"),
    *(
        f"data.{name}"
        for name in (
            "broken exclude dev_fraction shots train_images cache repeats "
            "num_frames frame_step frame_rate"
        ).split()
    ),
)


@dataclasses.dataclass(kw_only=True, slots=True)
class Text:
    """The text tower, and how images and texts are compared.

    Attributes:
        kind: "siglip" (all tokens see all) or "clip" (causal).
        loss: "softmax" (CLIP) or "sigmoid" (SigLIP).
        tokenizer: A folder with the tokenizer's files; "" makes one of the
            words of the training captions.
        vocab_size: Number of tokens; with "", at most so many.
        context_length: Tokens of a caption, the rest of which is cut off.
        hidden_size, num_layers, num_heads, mlp_dim: The tower.
        embedding_size: Width of the embeddings of both towers; 0 is that of
            the image tower, which then gets no projection.
    """

    kind: str = "siglip"
    loss: str = "softmax"
    tokenizer: str = ""
    vocab_size: int = 1000
    context_length: int = 16
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 4
    mlp_dim: int = 128
    embedding_size: int = 0


@dataclasses.dataclass(kw_only=True, slots=True)
class Config(experiment.Config):
    """A run on pairs. In all fields 0 and "" mean off.

    `model` is the image tower; model.tune="head" freezes it (LiT).

    Attributes:
        text: The text tower, and how images and texts are compared.
    """

    text: Text = dataclasses.field(default_factory=Text)


def run(config: Config, workdir: pathlib.Path) -> dict[str, float]:
    """Train and save a model of two towers.

    Returns:
        Loss, scores and step of the last evaluation, and those of the best one
        as "best_loss" and so on.
    """
    check(config)
    with fitting.opened(config, workdir) as (devices, finished):
        parts = train, evaluated = load(config)
        described = scored.described(config.data.dataset, *parts)
        workdirs.refuse_other_data(workdir, described)
        info = dataset_info(config, train)
        tokenizer = make_tokenizer(config.text, train)
        batches = pipelines(config, info, parts, tokenizer)
        best_by = "accuracy" if evaluated.class_texts else "recall"
        made = objective(config, tokenizer, best_by)
        if not finished:
            with inputs.naming_broken_files(train.images, evaluated.images):
                _train(config, workdir, devices, info, made, parts, batches)
        log = workdir / "metrics.csv"
        results = fitting.results(log, best_by)
        if devices.is_main:
            figures.plot_curves(log, workdir / "curves.png")
            examples = _draw(workdir, evaluated, batches[1])
            _report(workdir, results, best_by, evaluated, examples)
    return results


def _train(config, workdir, devices, info, made, parts, batches):
    """Train the two towers of an objective, and save them."""
    train, evaluated = parts
    steps = fitting.check_batches(batches)
    devices.check_batch(config.data.batch_size)
    with devices.scope():
        built = training_step.build(config, info, devices.kind, made)
    frozen = "frozen, " if config.model.tune == "head" else ""
    begin.record(
        *(config, workdir, devices, info, built),
        scored.described(config.data.dataset, *parts),
        size=info.pixels,
        model=f"{frozen}and a text tower",
        examples="images with captions",
    )
    shared = data.count_shared(evaluated.images, train.images)
    if shared and devices.is_main:
        print(
            f"WARNING: {shared} of the {evaluated.num_examples} evaluation "
            "images are also training images.",
            flush=True,
        )
    scores = evaluation.PairScores(evaluated, batches[1](), built.model)
    fitting.fit(
        *(built, config, devices, workdir, batches),
        eval_steps=steps,
        train_source=train.images,
        measurements=(scores,),
    )


def check(config: Config) -> None:
    """Refuse what pairs do not support."""
    checks.check(config)
    if config.run.micro_batches > 1:
        raise ValueError(
            "`run.micro_batches` must be 1: a contrastive loss compares every "
            "image with every text of the batch, and the parts of a batch "
            "would leave pairs out. Received: run.micro_batches="
            f"{config.run.micro_batches}. More devices, `model.remat` or a "
            "smaller `data.batch_size` need less memory."
        )
    kinds, losses = tuple(text.tower.KINDS), ("softmax", "sigmoid")
    checks.check_choice("text.kind", config.text.kind, kinds)
    checks.check_choice("text.loss", config.text.loss, losses)
    if config.text.loss == "softmax" and config.data.batch_size < 2:
        raise ValueError(
            "`data.batch_size` must be at least 2 with text.loss='softmax', "
            "whose loss of one pair is always 0. Received: data.batch_size=1"
        )
    # Three tokens are no words.
    checks.check_range("text.vocab_size", config.text.vocab_size, 4)
    scored.refuse_unused(config, UNUSED, "pairs")
    if config.model.tune == "lora":
        raise ValueError(
            "`model.tune` must be 'all', or 'head' to freeze the image tower. "
            "Received: 'lora'"
        )


def load(config: Config) -> tuple[data.PairSource, data.PairSource]:
    """Return the training and the evaluation part of the data set.

    Raises:
        ValueError: See `keras_vit.data.load_pairs`.
    """
    source = config.data
    return data.load_pairs(
        source.dataset, **inputs.parts(source), **inputs.of_tfds(source)
    )


def dataset_info(config: Config, train) -> inputs.DatasetInfo:
    """Return the properties of a data set that a run uses.

    Args:
        config: The config.
        train: The training part, or an object with `image_shape` and
            `num_examples`.
    """
    return inputs.DatasetInfo(
        image_size=inputs.image_size(config, train),
        channels=config.data.channels or (train.image_shape or (3,))[-1],
        class_names=(),
        train_images=train.num_examples,
    )


def make_tokenizer(settings: Text, train: data.PairSource) -> text.Tokenizer:
    """Return the tokenizer of a config.

    Raises:
        ValueError: If the folder has none, or there is none and the captions
            are a stream, whose words are not known.
    """
    length = settings.context_length
    if settings.tokenizer:
        found = text.Tokenizer.from_directory(settings.tokenizer, length)
        if found is None:
            raise ValueError(
                "`text.tokenizer` must be a folder with the files of a "
                "tokenizer, such as tokenizer.json. Received: "
                f"text.tokenizer={settings.tokenizer!r}"
            )
        if found.vocab_size > settings.vocab_size:
            raise ValueError(
                "`text.vocab_size` must be at least the number of tokens of "
                f"`text.tokenizer`, {found.vocab_size}. Received: "
                f"text.vocab_size={settings.vocab_size}"
            )
        return found
    if not train.texts:
        raise ValueError(
            "`text.tokenizer` must be a folder with a tokenizer's files for "
            f"{train.name!r}, whose captions are read as they are needed. "
            "Received: text.tokenizer=''"
        )
    counts = collections.Counter(
        word for caption in train.texts for word in _words(caption)
    )
    # The first three ids are padding, other words, and the end.
    most = sorted(counts, key=lambda word: (-counts[word], word))
    return text.word_tokenizer(most[: settings.vocab_size - 3], length)


def _words(caption):
    return re.findall(r"\w+", caption.lower())


def pipelines(config, info, parts, tokenizer):
    """Return functions that make batches, as `inputs.pipelines` does."""
    settings = config.data
    common = dict(
        batch_size=settings.batch_size,
        image_size=info.image_size,
        channels=info.channels,
    )

    def train_batches(start_step, *shard):
        return data.pair_batches(
            parts[0],
            tokenizer,
            **common,
            **inputs.crop_options(settings, info.image_size),
            flip=settings.flip,
            augment=settings.augment,
            seed=config.seed,
            start_step=start_step,
            **inputs.shard_options(*shard),
        )

    def eval_batches(*shard):
        return data.pair_eval_batches(
            parts[1],
            tokenizer,
            **common,
            resize=settings.eval_resize,
            **inputs.shard_options(*shard),
        )

    return functools.cache(train_batches), functools.cache(eval_batches)


def objective(
    config: Config, tokenizer: text.Tokenizer | None, best_by: str = "accuracy"
) -> training_step.Objective:
    """Return the text tower and the loss of a config.

    Args:
        config: The config.
        tokenizer: The tokenizer; None for a plan, which needs none.
        best_by: The score of the best evaluation.
    """
    settings = config.text

    def add_text(image: keras.Model) -> keras.Model:
        size = settings.embedding_size or image.output_shape[-1]
        tower = text.text_tower(
            settings.kind,  # type: ignore[arg-type]
            vocab_size=settings.vocab_size,
            context_length=settings.context_length,
            hidden_size=settings.hidden_size,
            num_layers=settings.num_layers,
            num_heads=settings.num_heads,
            mlp_dim=settings.mlp_dim,
            embedding_size=size,
            tokenizer=tokenizer,
            remat=config.model.remat,
        )
        first = training.contrastive_loss
        start: dict = dict(logit_scale=first.SOFTMAX_LOG_SCALE)
        if settings.loss == "sigmoid":
            start = dict(
                logit_scale=first.SIGMOID_LOG_SCALE,
                logit_bias=first.SIGMOID_BIAS,
            )
        return keras_vit.two_towers(image, tower, **start)

    return training_step.Objective(
        loss=training.ContrastiveLoss(),
        include_top=False,
        best_by=best_by,
        add_head=add_text,
    )


def planned(config: Config, info: inputs.DatasetInfo) -> tuple:
    """Return the objective of a config, and what makes its symbolic batch."""
    targets = dict(valid=keras.Input((), name="valid"))
    return objective(config, None), lambda model: (model.input, targets)


def _draw(workdir, evaluated, batches):
    """Draw images with the texts that fit best, and write the images.

    Returns:
        The paths of the images.
    """
    model = keras.models.load_model(workdir / "last.keras", compile=False)
    step = max(1, evaluated.num_examples // NUM_SHOWN)
    shown = batches().unbatch().enumerate()
    shown = shown.filter(lambda i, _: i % step == 0).take(NUM_SHOWN)
    found = [x for _, x in shown.as_numpy_iterator()]
    found = [x for x in found if x["labels"]["valid"] > 0]
    pixels = np.stack([x["images"]["images"] for x in found])
    if evaluated.class_texts:
        captions = [texts[0] for texts in evaluated.class_texts]
        ids = captions
        numbers = np.arange(0, evaluated.num_examples, step)[: len(found)]
        own = evaluated.labels[numbers]
    else:
        ids = np.stack([x["images"]["ids"] for x in found])
        captions = [f"caption {i + 1}" for i in range(len(found))]
        own = np.arange(len(found))
    logits = model.logits(pixels, ids)
    best = logits.argmax(1)
    figures.plot_attention(
        pixels,
        None,
        [captions[i] for i in best],
        workdir / "predictions.png",
        right=best == own,
    )
    return scored.save_examples(workdir, pixels)


def _report(workdir, results, best_by, evaluated, examples):
    """Print the scores, and how to use the model."""
    scored.say_scores(results, best_by)
    print(f"{workdir / 'predictions.png'} shows which text fits an image best.")
    query = "a photo of a cat"
    if evaluated.class_texts:
        query = evaluated.class_texts[-1][0]
    index = workdir / "index.npz"
    commands = (
        ("index", workdir / "last.keras", workdir / "examples", index),
        ("search", index, query, "--drawing", workdir / "found.png"),
    )
    print("Use it:")
    for command in commands:
        print(" ", shlex.join(["keras-vit", *map(str, command)]), flush=True)
