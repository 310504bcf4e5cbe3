"""Names of the authors' files, read and written back bit for bit."""

import contextlib
import pathlib
import sys

import catalogue
import keras
import numpy as np
import pytest
from functional import arrays_of
from keras import ops

import keras_vit
import keras_vit_cli
from keras_vit.weights import checkpoint, save
from tests.drawn_folders import drawn
from tests.modern_cases import open_case

pytestmark = pytest.mark.backend("torch")

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"
FILES = sorted(GOLDENS.glob("[hv]*.ckpt*.npz"))
TOKEN = GOLDENS / "vit_token.ckpt.npz"
GAP = GOLDENS / "vit_gap.ckpt.npz"
FILE = "model.safetensors"


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def tensors_of(path):
    return pytest.importorskip("safetensors.numpy").load_file(path)


def renamed(arrays, scheme):
    """A checkpoint of the authors as big_vision would have written it."""
    arrays = dict(arrays)
    if scheme.get("apart"):
        table = arrays.pop("Transformer/posembed_input/pos_embedding")
        arrays["pos_embedding"] = table[:, 1:] if "cls" in arrays else table
    if scheme.get("stacked"):
        stacked = {}
        for name in sorted(arrays):
            parts = name.split("/")
            if len(parts) > 2 and parts[1].startswith("encoderblock_"):
                rest = "/".join(["Transformer/encoderblock", *parts[2:]])
                stacked.setdefault(rest, []).append(arrays.pop(name))
        arrays |= {name: np.stack(parts) for name, parts in stacked.items()}
    return {f"params/{name}": array for name, array in arrays.items()}


BIG_VISION = [
    {},
    dict(apart=True),
    dict(stacked=True),
    dict(apart=True, stacked=True),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_there_and_back_through_a_model(path, tmp_path):
    model = keras_vit.ViT(weights=path)
    format = "jax_2020" if "2020" in path.stem else "jax"
    format = "big_vision" if "map" in path.stem else format
    keras_vit.save_checkpoint(model, tmp_path / "back.npz", format)
    same(arrays_of(tmp_path / "back.npz"), arrays_of(path))


@pytest.mark.parametrize("path", [TOKEN, GAP], ids=lambda path: path.stem)
@pytest.mark.parametrize("scheme", BIG_VISION, ids=str)
def test_big_vision_there_and_back(path, scheme, tmp_path):
    arrays = renamed(arrays_of(path), scheme)
    np.savez(tmp_path / "there.npz", **arrays)
    source = checkpoint.open_checkpoint(tmp_path / "there.npz")
    back = {}
    for rule in source.rules:
        parts = [source.arrays[name].read() for name in rule.sources]
        value = rule.transform.join(*parts)
        parts = rule.transform.split(value)
        back.update(zip(rule.sources, parts, strict=True))
    same(source.format.restore(back, source.naming_scheme), arrays)
    model = keras_vit.ViT(weights=tmp_path / "there.npz")
    x = np.random.default_rng(0).uniform(0, 255, (2, *model.input_shape[1:]))
    found = ops.convert_to_numpy(model(x))
    plain = keras_vit.ViT(weights=path)
    if scheme.get("apart") and "cls" in arrays_of(path):
        # big_vision has no embedding for the token.
        table = plain.get_layer("posembed_input").pos_embedding
        value = ops.convert_to_numpy(table).copy()
        value[:, 0] = 0
        table.assign(value)
    np.testing.assert_array_equal(found, ops.convert_to_numpy(plain(x)))


def test_big_vision_is_written_with_the_same_numbers(tmp_path):
    model = keras_vit.ViT(weights=TOKEN)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", "big_vision")
    assert "params/pos_embedding" in arrays_of(tmp_path / "a.npz")
    again = keras_vit.ViT(weights=tmp_path / "a.npz")
    x = np.random.default_rng(0).uniform(0, 255, (2, *model.input_shape[1:]))
    np.testing.assert_allclose(
        ops.convert_to_numpy(again(x)), ops.convert_to_numpy(model(x)),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_a_checkpoint_with_optimizer_state_is_read(tmp_path):
    arrays = renamed(arrays_of(TOKEN), {})
    more = {f"opt/mu/{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "train.npz", **arrays, **more)
    found = keras_vit.ViT(weights=tmp_path / "train.npz")
    expected = keras_vit.ViT(weights=TOKEN)
    for one, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(one), ops.convert_to_numpy(other)
        )


class TestRefusals:
    def model(self, **changes):
        arguments = dict(
            patch_size=2, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8,
            input_shape=(4, 4, 3), classes=2,
        )  # fmt: skip
        return keras_vit.ViT(**{**arguments, **changes})

    @pytest.mark.parametrize(
        ("changes", "format", "words"),
        [
            (dict(gelu_approximate=False), "jax", "tanh form"),
            (dict(layer_norm_epsilon=1e-3), "jax", "1e-6 in LayerNorm"),
            (dict(pixel_std=58.0), "jax", "pixel_std=127.5"),
            (dict(layer_norm_epsilon=1e-3), "timm", "1e-06 in LayerNorm"),
        ],
    )
    def test_other_numbers(self, changes, format, words, tmp_path):
        model = self.model(**changes)
        path = tmp_path / ("a.npz" if format == "jax" else "a")
        with pytest.raises(ValueError, match=words):
            keras_vit.save_checkpoint(model, path, format)
        assert not path.exists()
        if format == "jax":
            keras_vit.save_checkpoint(
                model, path, format, allow_differences=True
            )
            assert path.exists()

    @pytest.mark.parametrize(
        ("changes", "format", "words"),
        [
            (dict(pooling="gap"), "huggingface", "gap"),
            (dict(pooling="gap_norm"), "jax", "gap_norm"),
            (dict(pooling="gap_norm"), "huggingface", "gap_norm"),
            (dict(representation_size=4), "huggingface", "pre_logits"),
            (dict(representation_size=4), "timm", "pre_logits"),
            (dict(position_embedding="learned_2d"), "jax", "1-D"),
            (dict(pooling="unpooled"), "jax", "unpooled"),
            (
                dict(position_placement="every_layer_shared", num_layers=2),
                "jax",
                "every_layer_shared",
            ),
            (
                dict(
                    patch_size=1,
                    resnet_depths=(1,),
                    resnet_width=0.5,
                    resnet_numerics="timm",
                    input_shape=(32, 32, 3),
                ),
                "timm",
                "stem_of_other_units",
            ),
            ({}, "keras_hub", "`format` must be one of"),
        ],
    )
    def test_what_has_no_place(self, changes, format, words, tmp_path):
        with pytest.raises(ValueError, match=words):
            keras_vit.save_checkpoint(
                self.model(**changes), tmp_path / "a", format
            )
        assert list(tmp_path.iterdir()) == []

    def test_low_rank_updates(self, tmp_path):
        model = self.model()
        model.head.enable_lora(1)
        with pytest.raises(ValueError, match=r"no place for \['head/lora_ker"):
            keras_vit.save_checkpoint(model, tmp_path / "a.npz")
        assert list(tmp_path.iterdir()) == []

    def test_no_vit(self, tmp_path):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        with pytest.raises(ValueError, match="must be a model of keras_vit"):
            keras_vit.save_checkpoint(model, tmp_path / "a.npz")


class TestConvert:
    def test_both_ways(self, tmp_path, capsys):
        there, back = tmp_path / "there.npz", tmp_path / "back.npz"
        arguments = [str(TOKEN), str(there), "--format", "jax_2020"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        printed = capsys.readouterr().out
        assert "blocks 2, heads 3, width 48" in printed
        assert f"wrote {there}: jax_2020" in printed
        arguments = [str(there), str(back), "--format", "jax"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        same(arrays_of(back), arrays_of(TOKEN))

    def test_to_keras(self, tmp_path):
        path = tmp_path / "a.keras"
        arguments = [str(TOKEN), str(path), "--format", "keras_vit"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        model = keras.models.load_model(path)
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
        same(arrays_of(tmp_path / "a.npz"), arrays_of(TOKEN))

    @pytest.mark.parametrize("name", ["clip", "siglip2", "owlv2"])
    def test_the_text_tower_is_kept(self, name, tmp_path):
        folder = drawn("towers") / name
        arguments = [str(folder), str(tmp_path / "a"), "--format=huggingface"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        same(*(tensors_of(x / FILE) for x in (tmp_path / "a", folder)))
        arguments = [str(folder), str(tmp_path / "a.keras")]
        arguments.append("--format=keras_vit")
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        model = keras.models.load_model(tmp_path / "a.keras")
        assert isinstance(model, keras_vit.text.TwoTowers)

    def test_a_text_tower_that_a_format_lacks_is_named(self, tmp_path, capsys):
        arguments = [str(drawn("towers") / "clip"), str(tmp_path / "a")]
        arguments.append("--format=timm")
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        assert "the text tower left out" in capsys.readouterr().out

    def test_a_text_tower_alone(self, tmp_path):
        folder = drawn("towers") / "clip"
        text = keras_vit.from_pretrained(folder, towers="text")
        keras_vit.save_checkpoint(text, tmp_path / "a", "huggingface")
        arguments = [str(tmp_path / "a"), str(tmp_path / "b")]
        arguments.append("--format=huggingface")
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        same(*(tensors_of(tmp_path / x / FILE) for x in "ab"))

    def test_a_head_is_kept(self, tmp_path):
        source = drawn("tasks") / "yolos"
        heads = keras_vit.from_pretrained(source).metadata["num_heads"]
        arguments = [str(source), str(tmp_path / "a.keras")]
        arguments += ["--format=keras_vit", f"--num_heads={heads}"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        model = keras.models.load_model(tmp_path / "a.keras")
        assert model.task == "detection"

    @pytest.mark.parametrize(
        "name", ["hf_beit", "hf_dinov2", "timm_dinov3", "eomt_dinov3"]
    )
    def test_what_files_do_not_state(self, name, tmp_path):
        folder, file_format = drawn("tasks") / name, name.partition("_")[0]
        if file_format != "eomt":
            folder = tmp_path / name
            open_case(name, folder)
        file_format = "timm" if file_format == "timm" else "huggingface"
        arguments = [str(folder), str(tmp_path / "a"), "--format", file_format]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        model = keras_vit.from_pretrained(folder)
        keras_vit.save_checkpoint(model, tmp_path / "b", file_format)
        for file in (FILE, "config.json"):
            a, b = ((tmp_path / x / file).read_bytes() for x in "ab")
            assert a == b

    @pytest.mark.parametrize("heads", ["4", "0"])
    def test_other_heads_than_those_of_the_file_are_refused(
        self, heads, tmp_path, capsys
    ):
        out = tmp_path / "a.npz"
        arguments = [str(TOKEN), str(out), "--format=jax", "--num_heads", heads]
        with contextlib.suppress(SystemExit):  # of the parser
            assert keras_vit_cli.main(["convert", *arguments]) == 2
        assert "--num_heads" in capsys.readouterr().err
        assert not out.exists()

    def test_heads_that_do_not_divide_the_width_are_refused(
        self, tmp_path, capsys
    ):
        model = catalogue.make_model("deit", hidden_size=16)
        keras_vit.save_checkpoint(model, tmp_path / "a", "timm")
        words = ["convert", str(tmp_path / "a" / FILE), str(tmp_path / "b")]
        words += ["--format=timm", "--num_heads=3"]  # of a file without config
        assert keras_vit_cli.main(words) == 2
        assert "a width of 16" in capsys.readouterr().err

    def test_a_model_of_a_file_is_refused(self, tmp_path, capsys):
        arguments = [str(TOKEN), str(tmp_path / "a.npz"), "--format=jax"]
        arguments.append("--model=ViTB16")
        assert keras_vit_cli.main(["convert", *arguments]) == 2
        assert "--model is the constructor of" in capsys.readouterr().err

    def test_an_existing_file_is_not_overwritten(self, tmp_path, capsys):
        path = tmp_path / "a.npz"
        path.write_text("mine")
        arguments = [str(TOKEN), str(path), "--format", "jax"]
        assert keras_vit_cli.main(["convert", *arguments]) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert path.read_text() == "mine"
        assert keras_vit_cli.main(["convert", *arguments, "--overwrite"]) == 0

    def test_a_plain_vit_goes_to_timm_and_back(self, tmp_path):
        pytest.importorskip("safetensors")
        there, back = tmp_path / "there", tmp_path / "back.npz"
        # timm computes GELU as its config says, so nothing differs.
        arguments = [str(TOKEN), str(there), "--format", "timm"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        arguments = [str(there), str(back), "--format", "jax"]
        assert keras_vit_cli.main(["convert", *arguments]) == 0
        same(arrays_of(back), arrays_of(TOKEN))

    def test_every_array_is_accounted_for(self, tmp_path, capsys):
        arrays = arrays_of(TOKEN)
        arrays["LayerScale/gamma"] = arrays.pop("head/bias")
        np.savez(tmp_path / "odd.npz", **arrays)
        out = tmp_path / "out.npz"
        arguments = [str(tmp_path / "odd.npz"), str(out), "--format", "jax"]
        assert keras_vit_cli.main(["convert", *arguments]) == 2
        assert "+ LayerScale/gamma" in capsys.readouterr().err
        assert not out.exists()

    def test_an_unknown_format_lists_those_of_the_family(
        self, tmp_path, capsys
    ):
        arguments = [str(TOKEN), str(tmp_path / "a"), "--format", "timmm"]
        assert keras_vit_cli.main(["convert", *arguments]) == 2
        assert "'big_vision', 'timm'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("library", "name"), [("safetensors", "a"), ("torch", "a/b.pth")]
)
def test_without_its_library_no_folder_is_made(
    library, name, tmp_path, monkeypatch
):
    source = checkpoint.open_checkpoint(str(TOKEN))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=f"pip install {library}"):
        save.convert(source, tmp_path / name, "timm")
    assert list(tmp_path.iterdir()) == []


def test_formats_are_documented():
    for name in save.formats("vit"):
        assert f'"{name}"' in keras_vit.save_checkpoint.__doc__
