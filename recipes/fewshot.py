r"""Says what a frozen representation is worth, from a few labels a class.

python -m recipes.fewshot
python -m recipes.fewshot --config.weights=runs/digits/last.keras
python -m recipes.fewshot --config=recipes/configs/fewshot.py:ViTB16,cifar10
"""

import dataclasses
import json
import pathlib
import warnings

import keras

import keras_vit
from keras_vit import data, evaluation
from keras_vit.inspection import figures
from recipes import cli, experiment, inputs, training_step
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "fewshot.py"


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """Which representation to measure, and on what. Off is 0 or "".

    Attributes:
        model: A constructor of keras_vit, such as "ViTB16"; "ViT" takes its
            sizes from the weights.
        weights: A checkpoint (a run's last.keras, a file of another format)
            or a name of released weights; "" is an untrained model.
        include_top: False for weights that have no head.
        layer: Name of the layer to read, such as "encoderblock_3"; "" is what
            the head reads.
        dataset: "digits", a folder of images, an npz file, or a name of TFDS.
        train_split: TFDS split to draw labelled images from; "" is "train".
        eval_split: TFDS split to measure on; "" is "test" or "validation".
        eval_fraction: Share of each class held out where the data set has no
            part of its own for evaluation.
        data_dir: Where TFDS keeps prepared data; "" is its default.
        manual_dir: Where TFDS finds archives that are fetched by hand.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do about files that do not decode: "error", or "skip"
            to leave them out and list them in skipped.csv.
        max_train_images: Training images to look at, spread evenly over files
            and arrays and the first of a TFDS split; 0 is all.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the weights' own size.
        channels: Channels of the images; 0 is the weights' own number.
        shots: Numbers of labelled images of each class.
        num_draws: How often they are drawn.
        l2: Penalties of the regression to choose from, on training images
            that were not drawn.
        neighbours: Numbers of neighbours k for k-NN with all training images;
            0 is no k-NN.
        temperature: Of k-NN's weighted vote.
        batch_size: Images at a time.
        dtype_policy: "float32", "mixed_bfloat16", ...
        seed: Of the held-out part, the draws and an untrained model.
    """

    model: str = "ViT"
    weights: str = ""
    include_top: bool = True
    layer: str = ""
    dataset: str = "digits"
    train_split: str = ""
    eval_split: str = ""
    eval_fraction: float = 0.2
    data_dir: str = ""
    manual_dir: str = ""
    try_gcs: bool = False
    broken: str = "error"
    max_train_images: int = 0
    image_size: tuple[int, ...] = (0,)
    channels: int = 0
    shots: tuple[int, ...] = evaluation.SHOTS
    num_draws: int = 5
    l2: tuple[float, ...] = evaluation.L2
    neighbours: tuple[int, ...] = (10, 20)
    temperature: float = 0.07
    batch_size: int = 64
    dtype_policy: str = "float32"
    seed: int = 0


def run(config: Config, workdir: str = "") -> dict:
    """Measures few-shot and k-NN accuracy of a model that is not trained on.

    Usage:
        python -m recipes.fewshot
            An untrained ViT on scikit-learn's handwritten digits: what a
            trained representation must beat.
        python -m recipes.fewshot --config.weights=runs/digits/last.keras \\
            --config.layer=encoderblock_1
            Any model, layer and data set.
        python -m recipes.fewshot \\
            --config=recipes/configs/fewshot.py:ViTL16,cifar100
            Released weights on a data set of TFDS.

    The workdir, "runs/", the data set's name and "-fewshot" unless given,
    receives results.json and fewshot.png (accuracy against shots).

    Returns:
        What results.json holds.

    Raises:
        ValueError: If a field is not what it must be.
    """
    name = workdirs.default(config.model, config.dataset) + "-fewshot"
    workdir = workdirs.path_of(workdir or name)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.dtype_policy)
    train, test = data.load(
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
    if config.max_train_images:
        train = at_most(train, config.max_train_images)
    model = _model(config, train)
    what = config.weights or "no weights: an untrained model"
    left_out, left_out_counts = inputs.left_out(train, test)
    print(
        f"{model.name} ({what}), {config.layer or 'what the head reads'}; "
        f"{train.num_examples} images of {len(train.class_names)} classes to "
        f"draw from, {test.num_examples} to measure on."
        + (left_out and f" {left_out}."),
        flush=True,
    )
    num_classes = len(train.class_names)
    sources = train, test
    train, test = (
        evaluation.features(
            model,
            data.eval_batches(
                part,
                batch_size=config.batch_size,
                image_size=model.input_shape[1:3],
                channels=model.input_shape[3],
            ),
            config.layer or None,
        )
        for part in sources
    )
    results = evaluation.few_shot(
        train,
        test,
        num_classes=num_classes,
        shots=config.shots,
        l2=config.l2,
        num_draws=config.num_draws,
        seed=config.seed,
    )
    neighbours = [
        _neighbours(train, test, k, temperature)
        for k in config.neighbours
        if k
        for temperature in (None, config.temperature)
    ]

    found = dict(
        config=dataclasses.asdict(config),
        backend=keras.backend.backend(),
        train_images=len(train[1]),
        test_images=len(test[1]),
        **left_out_counts,
        feature_size=train[0].shape[1],
        few_shot=[
            dataclasses.asdict(result) | dict(accuracy=result.mean)
            for result in results
        ],
        neighbours=neighbours,
    )
    workdir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=2) + "\n"
    (workdir / "results.json").write_text(text)
    if config.broken == "skip":
        inputs.write_skipped(workdir / "skipped.csv", *sources)
    figures.plot_shots(
        [result.shots for result in results],
        [result.accuracies for result in results],
        workdir / "fewshot.png",
    )
    _print(results, neighbours)
    print(f"\n  {workdir / 'results.json'}\n  {workdir / 'fewshot.png'}")
    return found


def callback(
    model: keras.Model,
    dataset: str,
    shots: tuple[int, ...] = (5,),
    *,
    every: int = 1,
    max_test_images: int = 10_000,
    batch_size: int = 64,
    seed: int = 0,
    **places,
) -> evaluation.FewShot:
    """Returns what measures few-shot accuracy while a model is trained.

    Twice the most shots are kept of each class: what is not drawn chooses the
    penalty.

    Args:
        model: The model to measure, while it or another of its variables is
            trained.
        dataset: As `Config.dataset`; not what the model is trained on.
        shots: Numbers of labelled images of each class.
        every: Evaluations between two measurements.
        max_test_images: Images to measure on.
        batch_size: Images at a time.
        seed: Of the held-out part and the draws.
        **places: Further arguments of `keras_vit.data.load`.

    Returns:
        A callback that logs such as "digits/5-shot".

    Raises:
        ValueError: If there is no such data set, or a class has too few
            images.
    """
    train, test = data.load(dataset, seed=seed, **places)
    train, test = (
        data.eval_batches(
            part,
            batch_size=batch_size,
            image_size=model.input_shape[1:3],
            channels=model.input_shape[3],
        )
        for part in (
            data.keep_shots(train, 2 * max(shots), seed),
            at_most(test, max_test_images),
        )
    )
    return evaluation.FewShot(
        pathlib.Path(dataset).name,
        train,
        test,
        num_classes=train.element_spec["labels"].shape[-1],
        shots=shots,
        measured=model,
        every=every,
        seed=seed,
    )


def at_most(source: data.Source, count: int) -> data.Source:
    """Returns a source of no more examples than that.

    Args:
        source: A source of `keras_vit.data.load`.
        count: How many examples: spread evenly over files and arrays, the
            first of a stream.
    """
    return dataclasses.replace(
        data.sample(source, count),
        num_examples=min(count, source.num_examples),
    )


def _model(config, train):
    """Builds the model: of its weights' size, or else of the data set's."""
    setting = experiment.Config(
        model=config.model,
        image_size=config.image_size,
        channels=config.channels,
        num_epochs=1,
    )
    experiment.check(setting)
    info = inputs.dataset_info(setting, train)
    if not config.weights:
        return training_step.build(setting, info).model
    constructor = getattr(keras_vit, config.model)
    arguments = dict(weights=config.weights, include_top=config.include_top)
    with warnings.catch_warnings():
        # That it is all zeros: nothing here looks at it.
        warnings.filterwarnings("ignore", "The head of")
        model = constructor(**arguments)
        height, width, channels = model.input_shape[1:]
        if any(config.image_size):
            height, width = info.image_size
        shape = (height, width, config.channels or channels)
        if shape == model.input_shape[1:]:
            return model
        return constructor(**arguments, input_shape=shape)


def _neighbours(train, test, k, temperature):
    guesses = evaluation.nearest_neighbours(
        train, test[0], k=k, temperature=temperature
    )
    accuracy = float((guesses == test[1]).mean())
    return dict(k=k, temperature=temperature, accuracy=accuracy)


def _print(results, neighbours):
    print("\nshots  accuracy  deviation  draws  l2")
    for result in results:
        print(
            f"{result.shots:5}  {result.mean:8.2%}  {result.deviation:9.2%}  "
            f"{len(result.accuracies):5}  {result.l2:g}"
        )
    if neighbours:
        print("\n    k  accuracy  vote (all training images)")
    for row in neighbours:
        vote = "plain"
        if row["temperature"]:
            vote = f"weighted, temperature {row['temperature']:g}"
        print(f"{row['k']:5}  {row['accuracy']:8.2%}  {vote}")


if __name__ == "__main__":
    cli.main(run, DEFAULT_CONFIG)
