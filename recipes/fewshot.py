r"""Measures a frozen representation with a few labels per class.

python -m recipes.fewshot
python -m recipes.fewshot --config.include_top=False \
    --config.weights=runs/digits-masked_patch/last.keras
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
from recipes import cli, experiment, inputs, trained_on, training_step
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "fewshot.py"
MAX_TEST_IMAGES = 10_000  # to measure on during training


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """The representation to measure, and the data. 0 or "" means off.

    Attributes:
        model: Name of a constructor of keras_vit, such as "ViTB16"; "ViT" takes
            its sizes from the weights.
        weights: A checkpoint (a run's last.keras, a file of another format)
            or the name of released weights; "" is an untrained model.
        include_top: False for weights that have no head.
        layer: Name of the layer whose output is measured, such as
            "encoderblock_3"; "" is the input of the head.
        dataset: "digits", "moving_digits", a folder of images or of videos, an
            npz file, or a data set of TFDS. An image model is applied to each
            frame of a video, and its features are averaged.
        train_split: TFDS split to draw labelled images from; "" is "train".
        eval_split: TFDS split to measure on; "" is "test" or "validation".
        eval_fraction: Fraction of each class held out where the data set has no
            evaluation split.
        data_dir: Where TFDS stores prepared data; "" is its default.
        manual_dir: Where TFDS finds manually downloaded archives.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.
        broken: What to do about files that do not decode: "error", or "skip"
            to leave them out and list them in skipped.csv.
        max_train_images: Number of training images to use, spread evenly over
            files and arrays, or the first ones of a TFDS split; 0 is all.
        image_size: Height and width in pixels, `32,48`; one number makes a
            square. 0 is the size of the weights.
        channels: Channels of the images; 0 is the number of the weights.
        num_frames: Frames of a clip, for videos; 0 is the number of the
            weights, or else that of the data set, or 16.
        frame_step: Frames of the video from one frame of a clip to the next.
        frame_rate: Frames per second in which `frame_step` counts, for video
            files; 0 is each file's own rate.
        num_clips: Clips per video, spread evenly over it; their features are
            averaged.
        shots: Numbers of labelled images per class.
        num_draws: Number of random draws of these images.
        l2: Penalties of the regression. One is selected on training images that
            were not drawn.
        neighbours: Numbers of neighbours k for k-NN with all training images;
            0 is no k-NN.
        temperature: Temperature of the weighted k-NN vote.
        batch_size: Images per batch.
        dtype_policy: "float32", "mixed_bfloat16", ...
        seed: Seed of the draws and of an untrained model.
        split_seed: Seed of drawing the held-out images.
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
    num_frames: int = 0
    frame_step: int = 1
    frame_rate: float = 0.0
    num_clips: int = 1
    shots: tuple[int, ...] = evaluation.SHOTS
    num_draws: int = 5
    l2: tuple[float, ...] = evaluation.L2
    neighbours: tuple[int, ...] = (10, 20)
    temperature: float = 0.07
    batch_size: int = 64
    dtype_policy: str = "float32"
    seed: int = 0
    split_seed: int = 0


def run(config: Config, workdir: str = "") -> dict:
    """Measures few-shot and k-NN accuracy of a frozen model.

    Usage:
        python -m recipes.fewshot
            An untrained ViT on scikit-learn's handwritten digits, the baseline
            of a trained representation.
        python -m recipes.fewshot --config.weights=runs/digits/last.keras \\
            --config.layer=encoderblock_1
            Any model, layer and data set.
        python -m recipes.fewshot \\
            --config=recipes/configs/fewshot.py:ViTL16,cifar100
            Released weights on a data set of TFDS.

    Writes results.json and fewshot.png (accuracy against shots) to the workdir,
    which by default is "runs/", the name of the data set and "-fewshot".

    Returns:
        The contents of results.json.

    Raises:
        ValueError: If a field is invalid.
    """
    name = workdirs.default(config.model, config.dataset) + "-fewshot"
    workdir = workdirs.path_of(workdir or name)
    inputs.check_weights(config)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.dtype_policy)
    train, test = data.load(
        config.dataset,
        train_split=config.train_split,
        eval_split=config.eval_split,
        eval_fraction=config.eval_fraction,
        seed=config.split_seed,
        data_dir=config.data_dir,
        manual_dir=config.manual_dir,
        try_gcs=config.try_gcs,
        broken=config.broken,  # type: ignore[arg-type]
    )
    if config.max_train_images:
        train = at_most(train, config.max_train_images)
    model = _model(config, train)
    what = config.weights or "no weights: an untrained model"
    left_out, left_out_counts = inputs.left_out(train, test)
    overlap = trained_on.overlap(test, config.dataset, config.weights, train)
    kind = "videos" if train.is_video else "images"
    print(
        f"{model.name} ({what}), {config.layer or 'what the head reads'}; "
        f"{train.num_examples} {kind} of {len(train.class_names)} classes to "
        f"draw from, {test.num_examples} to measure on."
        + (left_out and f" {left_out}."),
        flush=True,
    )
    if overlap:
        print(f"WARNING: {overlap}.", flush=True)
    num_classes = len(train.class_names)
    sources = train, test
    extractor, batches = _reader(
        model,
        train,
        config.layer,
        batch_size=config.batch_size,
        num_frames=config.num_frames,
        frame_step=config.frame_step,
        frame_rate=config.frame_rate,
        num_clips=config.num_clips,
    )
    train, test = (
        evaluation.features(extractor, batches(part)) for part in sources
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
        overlap=overlap,
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
    max_test_images: int = MAX_TEST_IMAGES,
    batch_size: int = 64,
    num_frames: int = 0,
    frame_step: int = 1,
    frame_rate: float = 0.0,
    seed: int = 0,
    split_seed: int = 0,
    train_source: data.Source | None = None,
    **places,
) -> evaluation.FewShot:
    """Returns a callback that measures few-shot accuracy during training.

    For each class, twice the largest number of shots is used: the images that
    are not drawn select the penalty.

    Args:
        model: The model to measure: the trained one, or another one of its
            variables.
        dataset: As `Config.dataset`. For the data set of the training, pass its
            `split_seed` and `eval_fraction` too, so that the same images are
            held out.
        shots: Numbers of labelled images per class.
        every: Number of evaluations from one measurement to the next.
        max_test_images: Largest number of images to measure on.
        batch_size: Images per batch.
        num_frames, frame_step, frame_rate: Sampling of the clips, where
            `dataset` has videos; as in `Config`.
        seed: Seed of the draws.
        split_seed: Seed of drawing the held-out images.
        train_source: The images that the model is trained on; it is printed how
            many of them are among those to measure on.
        **places: Further arguments of `keras_vit.data.load`.

    Returns:
        A callback with logs such as "digits/5-shot".

    Raises:
        ValueError: If the data set does not exist, or a class has too few
            images.
    """
    train, test = data.load(dataset, seed=split_seed, **places)
    if train_source is not None and (
        n := data.count_shared(test, train_source)
    ):
        print(
            f"WARNING: {n} of the {test.num_examples} images that few-shot "
            f"accuracy on {dataset} is measured on are training images.",
            flush=True,
        )
    extractor, batches = _reader(
        model,
        train,
        "",
        batch_size=batch_size,
        num_frames=num_frames if train.is_video else 0,
        frame_step=frame_step,
        frame_rate=frame_rate,
    )
    return evaluation.FewShot(
        pathlib.Path(dataset).name,
        batches(data.keep_shots(train, 2 * max(shots), seed)),
        batches(at_most(test, max_test_images)),
        num_classes=len(train.class_names),
        shots=shots,
        measured=extractor,
        every=every,
        seed=seed,
    )


def at_most(source: data.Source, count: int) -> data.Source:
    """Returns a source of at most `count` examples.

    Args:
        source: A source of `keras_vit.data.load`.
        count: Largest number of examples: spread evenly over files and arrays,
            or the first ones of a stream.
    """
    return dataclasses.replace(
        data.sample(source, count),
        num_examples=min(count, source.num_examples),
    )


def _reader(
    model,
    source,
    layer,
    *,
    batch_size,
    num_frames,
    frame_step,
    frame_rate,
    num_clips=1,
):
    """Returns the feature extractor, and a function from source to batches."""
    extractor = evaluation.representation(model, layer or None)
    frames = inputs.num_frames(model, source, num_frames)
    if frames and len(model.input_shape) == 4:
        extractor = evaluation.average_scores(extractor, frames)
    if num_clips > 1:
        extractor = evaluation.average_scores(extractor, num_clips)

    def batches(part):
        return data.eval_batches(
            part,
            batch_size=batch_size,
            image_size=model.input_shape[-3:-1],
            channels=model.input_shape[-1],
            num_frames=frames,
            frame_step=frame_step,
            frame_rate=frame_rate,
            num_clips=num_clips,
        )

    return extractor, batches


def _model(config, train):
    """Builds the model with the size of its weights, or of the data set."""
    setting = experiment.Config(
        model=config.model,
        image_size=config.image_size,
        channels=config.channels,
        num_frames=config.num_frames,
        total_steps=1,
    )
    experiment.check(setting)
    info = inputs.dataset_info(setting, train)
    if not config.weights:
        return training_step.build(setting, info).model
    constructor = getattr(keras_vit, config.model)
    arguments = dict(weights=config.weights, include_top=config.include_top)
    with warnings.catch_warnings():
        # The warning of an all-zero head: the head is not used here.
        warnings.filterwarnings("ignore", "The head of")
        model = constructor(**arguments)
        *frames, height, width, channels = model.input_shape[1:]
        if frames and config.num_frames:
            frames = [config.num_frames]
        if any(config.image_size):
            height, width = info.image_size
        shape = (*frames, height, width, config.channels or channels)
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
