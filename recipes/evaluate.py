"""Measures a classifier, or a model with a head, on a data set.

python -m recipes.evaluate MODEL --dataset=imagenet2012 --split=validation

MODEL is a .keras file, released weights as CONSTRUCTOR:NAME
(ViTB16:augreg+imagenet2012), or any other checkpoint that
keras_vit.from_pretrained reads. Images are resized directly to the model's
size, as in the authors' evaluation, or as its run evaluated them.

If MODEL is a file of a run on the same data set, the images are those that the
run held out, as config.json beside it says. Of another folder or file without a
part for evaluation a share is held out, too; --split=all takes all images. If
images are measured that MODEL was trained on, the output says how many.

Classes are matched by name. If the data set has the same names in another
order, they are mapped; if it has some of the model's names, as a folder of
ImageNet-A or -R has, predictions are among these. Other names are an error,
unless --by_index declares that the classes of the model and of the data set
have the same order. A model without class names is matched by index, and the
output states this.

For videos, --clips and --crops take several views of each and average their
scores; --highest takes the highest score of each class. An image model is
applied to each frame, and its scores are averaged too. --shuffle_frames
measures a second time with the frames of each clip in random order: a model
that uses time loses accuracy (Fan et al. 2021).

--dataset=imagenet2012_real adds ReaL accuracy: a prediction is correct if it is
among the labels of the reassessed ImageNet validation set. Images without such
labels are left out (Beyer et al. 2020, 2006.07159).

A model with a head is measured on boxes, masks or depth: a folder of COCO's
form, digit_scenes, or coco/2017 of TFDS, each image as `keras-vit predict`
reads it. Objects of classes that the data set lacks are left out.

--dataset=objectnet --data_dir=objectnet-1.0 measures a classifier of ImageNet
on the 113 classes of ObjectNet that ImageNet has, too (Barbu et al. 2019). The
predictions are among all 1,000 classes.
"""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.evaluate")

import argparse
import contextlib
import json
import sys

from keras_vit._paths import can_be_written
from keras_vit.heads import TaskModel
from keras_vit_cli import command, opening
from recipes import evaluate_classifier, evaluate_tasks


@command.entry
def main(arguments: list[str]) -> int:
    """Evaluate as the command line asks; return 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # Before hours of work that would be lost.
    if options.output is not None and not can_be_written(options.output):
        raise ValueError(
            "--output must be a file in a folder that exists and can be "
            f"written. Received: --output={options.output}"
        )
    with contextlib.redirect_stdout(sys.stderr):  # what TFDS prints
        model = opening.load(options.model)
        has_task = isinstance(model, TaskModel)
        kind = evaluate_tasks if has_task else evaluate_classifier
        defaults = {x: parser.get_default(x) for x in vars(options)}
        results = kind.measure(model, options, defaults)
    text = json.dumps(results, indent=2)
    print(text if options.json else kind.table(results))
    if options.output:
        with open(options.output, "w") as file:
            file.write(text + "\n")
    return 0


def _parser():
    parser = command.Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, count, natural = parser.add_argument, command.count, command.natural
    add("model", metavar="MODEL")
    named = "name of TFDS, folder of images or videos, npz file, digits or "
    named += "moving_digits; of a model with a head a folder or digit_scenes"
    add("--dataset", default="imagenet2012", help=named)
    split = (
        "split of TFDS (test or, without labels, validation); else 'train' is "
    )
    split += "what runs train on, 'all' that and what is held out, and of a "
    split += "folder with test and val one of them"
    add("--split", default="", help=split)
    place = "where TFDS keeps data, or the unpacked archive of ObjectNet"
    add("--data_dir", default="", help=place)
    add("--manual_dir", default="", help="where TFDS finds archives")
    resize = "shorter side in pixels before a central crop, 0 for no crop "
    resize += "(that of the run of MODEL, or 0)"
    add("--resize", type=natural, help=resize)
    frames = "frames of a clip (the model's own, or those of its run)"
    add("--num_frames", type=natural, default=0, help=frames)
    add("--clips", type=count, default=1, help="clips of each video (1)")
    crops = "crops of each clip along its longer side (1)"
    add("--crops", type=count, default=1, help=crops)
    add("--batch_size", type=count, default=64, help="images at a time (64)")
    for name, meaning in (
        ("try_gcs", "read TFDS from Google Cloud"),
        ("shuffle_frames", "measure on clips with shuffled frames as well"),
        ("highest", "take the highest score of the views, not the average"),
        ("by_index", "match classes by their order, regardless of names"),
        ("json", "print JSON, no table"),
        ("zero_is_ignored", "masks of classes count from 1, as in a run's"),
    ):
        add(f"--{name}", action="store_true", help=meaning)
    share = "share held out where a set has no part for evaluation (that of "
    share += "the run of MODEL on this data set, or 0.2)"
    add("--eval_fraction", type=float, help=share)
    split_seed = "seed of drawing the held-out part (that of the run, or 0)"
    add("--split_seed", type=natural, help=split_seed)
    add("--seed", type=natural, help="seed of --shuffle_frames (0)")
    step = "frames of a video between those of a clip (that of the run of "
    step += "MODEL); 0 takes the middle of as many segments of the video"
    add("--frame_step", type=natural, help=step)
    rate = "frames per second of --frame_step (that of the run of MODEL, or 0, "
    add("--frame_rate", type=float, help=f"{rate}each file's own)")
    unit = "metres of 1 in a PNG of depth (that of the run of MODEL, or 0.001)"
    add("--depth_unit", type=float, help=unit)
    output = "write JSON to a file as well"
    add("--output", metavar="RESULTS.json", help=output)
    return parser
