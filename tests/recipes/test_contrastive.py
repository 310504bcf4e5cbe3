"""Training two towers on images and sentences, and resuming it."""

import json
import shlex

import keras
import numpy as np
import pytest
import small_runs

import keras_vit_cli
from keras_vit import data, text
from recipes import (
    cli,
    contrastive,
    experiment,
    fields,
    finetune,
    training_step,
)
from recipes.configs import contrastive as configs


def small(**changes):
    config = configs.get_config()
    config.model.architecture = experiment.Architecture(
        patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16
    )
    config.data.image_size, config.data.batch_size = (8,), 32
    config.text.hidden_size, config.text.mlp_dim = 16, 16
    config.text.num_layers = 1
    config.schedule.total_steps, config.schedule.warmup_steps = 4, 0
    config.evaluation.every = config.run.checkpoint_every = 2
    return fields.changed(config, changes)


pytestmark = pytest.mark.usefixtures("no_pictures", "plain_decoding")


@pytest.mark.thorough("tensorflow", "jax")
def test_a_run_that_resumes_ends_with_the_same_weights(tmp_path, capsys):
    config = small()
    whole = finetune.run(config, str(tmp_path / "whole"))
    assert {"accuracy", "ensemble_accuracy", "best_accuracy"} <= set(whole)
    assert np.isfinite(whole["loss"])
    *_, index, search = capsys.readouterr().out.splitlines()
    folders = (tmp_path / name for name in ("whole", "resumed"))
    small_runs.assert_resumes(finetune.run, config, whole, *folders)
    capsys.readouterr()
    # What the run printed works: the tokenizer is part of the model.
    assert keras_vit_cli.main(shlex.split(index)[1:]) == 0
    search = shlex.split(search)[1:]
    assert keras_vit_cli.main([*search, "--drawing=o.xyz"]) == 2
    assert "--drawing must be a file" in capsys.readouterr().err
    assert keras_vit_cli.main([*search, "--top_k=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert scores == sorted(scores, reverse=True) and len(scores) == 3
    other = f"--model={tmp_path / 'resumed' / 'best.keras'}"
    assert keras_vit_cli.main([*search, other]) == 2
    assert "with which INDEX was made" in capsys.readouterr().err
    assert (tmp_path / "whole/found.png").stat().st_size > 1000


@pytest.mark.backend("torch")
def test_a_frozen_image_tower_stays(tmp_path):
    changes = {"model.tune": "head", "text.loss": "sigmoid"}
    config = small(**changes, **{"text.kind": "clip"})
    finetune.run(config, str(tmp_path / "run"))
    path = tmp_path / "run/last.keras"
    model = keras.models.load_model(path, compile=False)
    made = contrastive.objective(config, model.tokenizer)
    bias = keras.ops.convert_to_numpy(model.similarity.logit_bias)
    assert 0 < abs(bias + 10) < 0.1
    assert made.best_by == "accuracy"
    keras.utils.set_random_seed(config.seed)
    train, _ = contrastive.load(config)
    info = contrastive.dataset_info(config, train)
    before = training_step.build(config, info, objective=made).model

    def are_same(tower, other):
        pairs = zip(tower.weights, other.weights, strict=True)
        return [np.array_equal(*pair) for pair in pairs]

    assert all(are_same(before.image_tower, model.image_tower))
    assert not any(are_same(before.text_tower, model.text_tower))


def of_greys(images):
    """Write a table of captions; return the config of a run on it."""
    images.mkdir()
    rows = ["image,caption"]
    for i in range(12):
        pixels = np.full((8, 8, 3), 20 * i, "uint8")
        keras.utils.save_img(images / f"{i}.png", pixels, scale=False)
        rows.append(f"{i}.png,the grey number {i}")
    (images / "captions.csv").write_text("\n".join(rows))
    return small(
        **{
            "data.dataset": str(images / "captions.csv"),
            "data.batch_size": 8,
            "data.eval_fraction": 0.5,
        }
    )


@pytest.mark.backend("torch")
def test_training_images_among_those_of_the_evaluation_are_counted(
    tmp_path, capsys
):
    config = of_greys(tmp_path / "images")
    rows = (tmp_path / "images/captions.csv").read_text().splitlines()
    (tmp_path / "images/train.csv").write_text("\n".join(rows))
    (tmp_path / "images/test.csv").write_text("\n".join(rows[:1] + rows[-4:]))
    config.data.dataset = str(tmp_path / "images")
    config.schedule.total_steps = 2
    finetune.run(config, str(tmp_path / "run"))
    assert "WARNING: 4 of the 4 eval" in capsys.readouterr().out


@pytest.mark.backend("torch")
def test_an_image_that_does_not_decode_is_named(tmp_path):
    config = of_greys(tmp_path / "images")
    (tmp_path / "images/3.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"images/3\.png: Unknown image"):
        finetune.run(config, str(tmp_path / "run"))


@pytest.mark.backend("torch")
def test_captions_are_retrieved_without_classes(tmp_path):
    images = tmp_path / "images"
    config = of_greys(images)
    found = finetune.run(config, str(tmp_path / "run"))
    assert {"recall", "text_recall", "image_recall"} <= set(found)
    assert 0 <= found["recall"] <= 1
    model = keras.models.load_model(tmp_path / "run/last.keras", compile=False)
    assert data.load_pairs(str(images / "captions.csv"))[0].texts
    assert model.tokenizer(["the grey number"]).shape == (1, 16)


@pytest.mark.backend_independent
def test_settings(tmp_path):
    # From memory, not compared with the papers again: CLIP's crop, and of
    # SigLIP and LiT all but the losses, the first scales and the frozen tower.
    for method, expected in (
        # Radford et al. 2021, tables 18 (all models) and 20 (ViTs).
        (
            "clip",
            {
                "model.name": "CLIPB32",
                "data.batch_size": 32_768,
                "optim.base_lr": 5e-4,
                "optim.weight_decay": 0.2,
                "schedule.num_epochs": 32,
                "schedule.warmup_steps": 2000,
                "text.vocab_size": 49_408,
                "optim.name": "AdamW(beta_1=0.9, beta_2=0.98, epsilon=1e-6)",
                "data.image_size": (224,),
                "text.kind": "clip",
                "text.context_length": 77,
                "text.hidden_size": 512,
                "text.num_layers": 12,
                "text.num_heads": 8,
                "text.embedding_size": 512,
                "text.loss": "softmax",
            },
        ),
        # Zhai et al. 2023, section 4.
        (
            "siglip",
            {
                "data.batch_size": 32_768,
                "optim.base_lr": 1e-3,
                "optim.weight_decay": 1e-4,
                "optim.name": "AdamW(beta_1=0.9, beta_2=0.95)",
                "data.image_size": (224,),
                "schedule.total_steps": 274_658,  # of 9 billion pairs
                "text.kind": "siglip",
                "text.loss": "sigmoid",
                "text.vocab_size": 32_000,
                "text.context_length": 64,
                "text.hidden_size": 768,
                "text.num_layers": 12,
                "text.num_heads": 12,
                "text.mlp_dim": 3072,
            },
        ),
        # Zhai et al. 2022: the image tower is locked.
        (
            "lit",
            {
                "model.tune": "head",
                "model.weights": "imagenet21k",
                "text.loss": "softmax",
                "optim.name": "adam",
                "optim.base_lr": 1e-3,
                "optim.weight_decay": 0.01,
                "optim.clip_norm": 1.0,
                "schedule.total_steps": 5000,
                "schedule.warmup_steps": 150,
                "text.context_length": 16,
                "text.hidden_size": 768,
                "data.batch_size": 512,
            },
        ),
    ):
        path = f"recipes/configs/contrastive.py:{method},coco_captions"
        config, *_ = cli.parse(["", f"--config={path}"], path.split(":")[0])
        contrastive.check(config)
        for field, value in expected.items():
            assert fields.get(config, field) == value, field
    for path, value, message in (
        ("run.micro_batches", 2, "would leave pairs out"),
        ("text.loss", "triplet", "`text.loss` must be one of"),
        ("model.tune", "lora", "freeze the image tower"),
        ("data.shots", 2, "`data.shots` has no effect on pairs"),
        ("text.vocab_size", 3, "`text.vocab_size` must be at least 4"),
        ("data.batch_size", 1, "`data.batch_size` must be at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            contrastive.run(small(**{path: value}), tmp_path)
    with pytest.raises(ValueError, match="a comma and a data set"):
        configs.get_config("clap,coco_captions")


@pytest.mark.backend("torch")
def test_the_text_tower_fits_any_tokenizer(monkeypatch):
    words = text.word_tokenizer(["a", "red", "cat"], 16)
    monkeypatch.setattr(text.Tokenizer, "from_directory", lambda *args: words)
    few = contrastive.Text(tokenizer="folder", vocab_size=5)
    with pytest.raises(ValueError, match="number of tokens .*, 6. Received"):
        contrastive.make_tokenizer(few, None)
    # SentencePiece ends a text with id 1, the least but for the unknown.
    words.kind, words._parts = "siglip", (lambda *args: ([1], False), 1, 0, 9)
    made = contrastive.objective(small(**{"text.kind": "clip"}), words)
    towers = made.add_head(small_runs.small_vit(include_top=False))
    assert towers.text_tower.architecture.end_token == 1
