"""Files that are damaged, hostile or of another kind."""

import functools
import io
import json
import pathlib
import pickle
import zipfile

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import small_checkpoints
from functional import arrays_of

import keras_vit
from keras_vit.export import in_precision
from keras_vit.weights import checkpoint, formats
from keras_vit.weights.formats import guard

pytestmark = pytest.mark.backend("torch")

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"
TOKEN = GOLDENS / "vit_token.ckpt.npz"


def read_all(path):
    """What a loader reads of a file: all of it."""
    source = checkpoint.open_checkpoint(path)
    return {name: array.read() for name, array in source.arrays.items()}


def refused(path, *words):
    """The file is refused in one sentence that names it; returns that."""
    with pytest.raises(ValueError) as error:
        read_all(path)
    text = str(error.value)
    for word in (path.name, *words):
        assert word in text
    assert "Traceback" not in text
    assert len(text) < 700
    return text


def small_arrays(**changes):
    """A ViT of a few kilobytes, so that every byte can be damaged."""
    model = keras_vit.ViT(
        patch_size=2, hidden_size=4, num_layers=1, num_heads=1, mlp_dim=4,
        **dict(dict(input_shape=(4, 4, 1), classes=2), **changes),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    return model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Bytes of the same small ViT in each kind of file, and its values."""
    folder = tmp_path_factory.mktemp("small")
    model = small_arrays()
    keras_vit.save_checkpoint(model, folder / "a.npz")
    model.save(folder / "a.keras")
    model.save_weights(folder / "a.weights.h5")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _replace_member(path, name, content):
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for n, old in members.items():
            archive.writestr(n, content if n == name else old)


def same_or_refused(path, expected):
    """A damaged file either raises in one sentence or reads right."""
    try:
        found = read_all(path)
    except ValueError as error:
        text = str(error)
        assert path.name in text
        assert len(text) < 1500
        return True
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
    return False


class TestDamagedNpz:
    def test_pickles_are_refused_and_not_run(self, tmp_path):
        ran = []

        class Bomb:
            def __reduce__(self):
                return (ran.append, (1,))

        path = tmp_path / "pickle.npz"
        np.savez(path, cls=np.array([Bomb()], dtype=object))
        refused(path, "pickled")
        path.write_bytes(pickle.dumps(Bomb()))
        refused(path, "not a zip archive")
        assert ran == []

    def test_a_file_of_another_library_is_of_no_format(self, tmp_path):
        path = tmp_path / "clip_vit_b32.msgpack"
        path.write_bytes(b"\x83\xa6params")
        refused(path, "no format that is read")

    def test_a_claim_of_a_terabyte_allocates_nothing(self, tmp_path):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, dict(descr="<f4", fortran_order=False, shape=(2**38,))
        )
        path = tmp_path / "claim.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("cls.npy", header.getvalue() + b"\0" * 64)
        refused(path, "claims an array of 1099511627776 bytes")

    def test_a_bomb_is_not_unfolded(self, tmp_path):
        path = tmp_path / "bomb.npz"
        kind = dict(compression=zipfile.ZIP_DEFLATED, compresslevel=1)
        with zipfile.ZipFile(path, "w", **kind) as archive:
            with archive.open("cls.npy", "w") as member:
                for _ in range(300):
                    member.write(b"\0" * 2**20)
        refused(path, "claims to hold")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    @pytest.mark.parametrize("member", ["a", "a.npy"])
    def test_one_name_under_two_members(self, member, tmp_path):
        path = tmp_path / "twice.npz"
        np.savez(path, a=np.ones(2, "float32"))
        content = io.BytesIO()
        np.save(content, np.zeros(2, "float32"))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(member, content.getvalue())
        refused(path, "twice")

    @pytest.mark.parametrize(
        "other", ["pos_embedding", "Transformer/encoderblock/LayerNorm_0/bias"]
    )
    def test_an_array_under_two_naming_schemes(self, other, tmp_path):
        path = tmp_path / "twice.npz"
        arrays = small_checkpoints.authors()
        arrays[other] = np.ones((2, 12), "float32")
        np.savez(path, **arrays)
        refused(path, "once", "twice")

    def test_an_archive_of_too_many_members_is_refused_unread(
        self, tmp_path, monkeypatch
    ):
        path = tmp_path / "many.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for i in range(20_001):
                archive.writestr(zipfile.ZipInfo(f"{i}.npy"), b"")
        content = bytearray(path.read_bytes())

        def read(*args):
            raise AssertionError("its members are looked at")

        with monkeypatch.context() as patch:
            patch.setattr(guard.zipfile, "ZipFile", read)
            refused(path, "more than 20000 members")
        # Where the last record lies, the directory is counted.
        at = content.rfind(b"PK\5\6")
        content[at + 8 : at + 12] = b"\1\0\1\0"
        path.write_bytes(content)
        refused(path, "more than 20000 members")

    @pytest.mark.parametrize("dtype", [">f4", ml_dtypes.bfloat16])
    def test_other_kinds_of_numbers_are_read(self, dtype, tmp_path):
        arrays = {k: v.astype(dtype) for k, v in arrays_of(TOKEN).items()}
        np.savez(tmp_path / "a.npz", **arrays)
        for name, array in read_all(tmp_path / "a.npz").items():
            assert array.dtype.isnative
            np.testing.assert_array_equal(
                array.astype("float32"), arrays[name].astype("float32")
            )

    def test_a_directory_without_weights(self, tmp_path):
        refused(tmp_path, "directory")
        for name in ("best.keras", "last.keras"):  # as in that of a run
            (tmp_path / name).touch()
        refused(tmp_path, f"Name a file in it: ['{tmp_path}/best.keras', ")


class TestOwnFiles:
    @pytest.mark.parametrize("name", ["a.keras", "a.weights.h5"])
    def test_bfloat16(self, name, tmp_path):
        model = in_precision(small_arrays(), "bfloat16")
        model.save(tmp_path / "a.keras")
        model.save_weights(tmp_path / "a.weights.h5")
        arrays = read_all(tmp_path / name)
        assert len(arrays) == len(model.weights)
        for weight in model.get_weights():
            assert any(
                np.array_equal(array.astype("float32"), weight)
                for array in arrays.values()
            )

    @pytest.mark.parametrize("name", ["a.keras", "a.weights.h5"])
    def test_truncations(self, name, small, tmp_path):
        content = small[name]
        path = tmp_path / f"short-{name}"
        for length in np.linspace(0, len(content) - 1, 12).astype(int):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError) as error:
                read_all(path)
            assert path.name in str(error.value)

    def test_flipped_bytes_of_keras_files(self, small, tmp_path):
        path = tmp_path / "flipped.keras"
        path.write_bytes(small["a.keras"])
        expected = read_all(path)
        content = small["a.keras"]
        places = np.random.default_rng(1).choice(len(content), 40, False)
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 0xFF
            path.write_bytes(damaged)
            same_or_refused(path, expected)

    @pytest.mark.parametrize(
        ("what", "words"),
        [
            ("external", "points out of the file"),
            ("link to a file", "points out of the file"),
            ("soft link", "points out of the file"),
            ("virtual", "points out of the file"),
            ("unwritten", "not written completely"),
            ("partly written", "not written completely"),
            ("compressed", "compressed"),
            ("once for all", "claims to hold"),
        ],
    )
    def test_each_number_is_in_the_file_once(
        self, what, words, small, tmp_path
    ):
        path, other = tmp_path / "a.weights.h5", tmp_path / "other.h5"
        path.write_bytes(small["a.weights.h5"])
        other.write_bytes(bytes(64))
        with h5py.File(path, "a") as file:
            group = file["layers/class_token/vars"]
            del group["0"]
            make = functools.partial(
                group.create_dataset, "0", (1, 1, 4), "float32"
            )
            if what == "external":
                make(external=[(str(other), 0, 16)])
            elif what == "link to a file":
                group["0"] = h5py.ExternalLink(str(other), "/d")
            elif what == "soft link":
                group["0"] = h5py.SoftLink("/layers/head/vars/0")
            elif what == "virtual":
                layout = h5py.VirtualLayout((1, 1, 4), "float32")
                layout[:] = h5py.VirtualSource(str(other), "d", (1, 1, 4))
                group.create_virtual_dataset("0", layout)
            elif what == "unwritten":
                make()
            elif what == "partly written":
                make(chunks=(1, 1, 2))[0, 0, 0] = 1
            elif what == "compressed":
                make(compression="gzip", data=np.ones((1, 1, 4)))
            else:
                large = group.create_dataset("1", data=np.ones(8000, "float32"))
                for i in range(2, 5):
                    group[str(i)] = large
        refused(path, words)
        archive = tmp_path / "a.keras"
        archive.write_bytes(small["a.keras"])
        _replace_member(archive, "model.weights.h5", path.read_bytes())
        refused(archive, words)

    @pytest.mark.parametrize("name", ["class_token", "0"])
    def test_a_variable_twice(self, name, small, tmp_path):
        path = tmp_path / "twice.weights.h5"
        path.write_bytes(small["a.weights.h5"])
        with h5py.File(path, "a") as file:
            group = file["layers/class_token/vars"]
            if name == "0":  # the same number, spelt otherwise
                group["00"] = np.zeros((1, 1, 4), "float32")
            else:
                file.copy("layers/class_token", "layers/z")
        refused(path, "twice" if name != "0" else "'00'")

    def test_groups_that_hold_one_another_are_refused(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(guard, "MAX_MEMBERS", 500)
        path = tmp_path / "groups.weights.h5"
        with h5py.File(path, "w") as file:
            group = file
            for _ in range(40):  # 2 ** 40 paths
                below = group.create_group("a")
                group["b"] = below
                group = below
        refused(path, "more than 500 groups")

    @pytest.mark.parametrize(
        "changes",
        [
            dict(pooling="gap"),
            dict(pooling="gap_norm"),
            dict(pooling="unpooled"),
            dict(position_placement="every_layer_shared"),
            dict(position_placement="every_layer"),
            dict(position_embedding="learned_2d"),
            dict(position_embedding="relative"),
            dict(position_embedding="none"),
            dict(pixel_mean=(1.0,), pixel_std=(2.0,)),
        ],
        ids=str,
    )
    def test_a_keras_file_specifies_all_of_its_model(self, changes, tmp_path):
        model = small_arrays(**changes)
        model.save(tmp_path / "a.keras")
        again = keras_vit.ViT(weights=tmp_path / "a.keras")
        x = np.random.default_rng(0).uniform(0, 255, (2, 4, 4, 1))
        np.testing.assert_array_equal(
            again.predict(x, verbose=0), model.predict(x, verbose=0)
        )

    def test_pixels_of_other_channels_have_no_known_scale(self, tmp_path):
        rgb = dict(pixel_mean=(1.0, 2.0, 3.0), pixel_std=(4.0, 4.0, 4.0))
        small_arrays(input_shape=(4, 4, 3), **rgb).save(tmp_path / "a.keras")
        given = dict(input_shape=(4, 4, 1), include_preprocessing=False)
        model = keras_vit.from_pretrained(tmp_path / "a.keras", **given)
        assert model.pixel_mean is None
        assert tuple(model.pixel_std) == (4.0, 4.0, 4.0)

    def test_a_folder_of_keras_is_read_as_a_file_is(self, tmp_path):
        model = small_arrays(
            pooling="gap_norm",
            class_names=("a", "b"),
            pixel_mean=(1.0,),
            layer_norm_epsilon=1e-3,
        )
        keras.saving.save_model(model, tmp_path / "folder", zipped=False)
        again = keras_vit.ViT(weights=tmp_path / "folder")
        x = np.random.default_rng(0).uniform(0, 255, (2, 4, 4, 1))
        np.testing.assert_array_equal(
            again.predict(x, verbose=0), model.predict(x, verbose=0)
        )
        assert again.get_layer("head").class_names == ("a", "b")
        # Another resolution, as of any weights.
        keras_vit.ViT(weights=tmp_path / "folder", input_shape=(8, 8, 1))
        # Damaged, it is refused by name.
        (tmp_path / "folder/config.json").write_text('{"config": []}')
        refused(tmp_path / "folder", "cannot be read")
        (tmp_path / "folder/model.weights.h5").write_bytes(b"")
        refused(tmp_path / "folder", "model.weights.h5", "damaged")

    @pytest.mark.backend("tensorflow", "jax", "torch")
    @pytest.mark.parametrize("name", ["a.keras", "a.weights.h5"])
    def test_are_read_as_they_were_saved(self, name, small, tmp_path):
        path = tmp_path / name
        path.write_bytes(small[name])
        npz = tmp_path / "a.npz"
        npz.write_bytes(small["a.npz"])
        arguments = {}
        if name != "a.keras":
            # Weights alone do not specify how the model computes.
            with pytest.raises(ValueError, match="gelu_approximate.*must be"):
                keras_vit.ViT(weights=path, num_heads=1)
            arguments = dict(
                num_heads=1, gelu_approximate=True, layer_norm_epsilon=1e-6
            )
            with pytest.raises(ValueError, match="`pixel_mean`"):
                keras_vit.ViT(weights=path, **arguments)
            arguments |= dict(pixel_mean=127.5, pixel_std=127.5)
        ours = keras_vit.ViT(weights=path, **arguments)
        theirs = keras_vit.ViT(weights=npz)
        for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("file", "value", "stored_as", "dtype"),
    [
        ("a.npz", -1e39, "float64", "float32"),
        ("a.npz", 3.4e38, "float32", "bfloat16"),
        ("timm", 7e4, "float32", "float16"),
        ("timm", 1e300, "float64", "float32"),
    ],
)
def test_values_that_the_dtype_of_the_model_lacks(
    file, value, stored_as, dtype, tmp_path
):
    path = tmp_path / file
    if file == "timm":
        arrays, config = small_checkpoints.timm()
        arrays["cls_token"] = np.full(
            arrays["cls_token"].shape, value, stored_as
        )
        small_checkpoints.write(path, arrays, config)
    else:
        arrays = small_checkpoints.authors()
        arrays["cls"] = np.full(arrays["cls"].shape, value, stored_as)
        np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"{file}.*{dtype} can hold.*cls"):
        keras_vit.ViT(weights=path, dtype=dtype)


class TestTorchFiles:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_code_in_a_pickle_is_refused_and_not_run(self, tmp_path, torch):
        ran = []

        class Bomb:
            def __reduce__(self):
                return (ran.append, (1,))

        path = tmp_path / "bomb.pth"
        torch.save({"cls": torch.zeros(2), "x": Bomb()}, path)
        refused(path, "could run code")
        assert ran == []

    @pytest.mark.filterwarnings("ignore")
    def test_damage_is_found(self, tmp_path, torch):
        state = {f"blocks.{i}.norm1.weight": torch.rand(64) for i in range(4)}
        path = tmp_path / "state.pth"
        torch.save(state, path)
        content = path.read_bytes()
        for length in np.linspace(0, len(content) - 1, 8).astype(int):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match=r"state\.pth"):
                formats.read(str(path))
        at = content.find(state["blocks.1.norm1.weight"].numpy().tobytes())
        damaged = bytearray(content)
        damaged[at + 5] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="checksum"):
            formats.read(str(path))

    def test_a_tensor_that_is_stored_with_the_other_sign(self, tmp_path, torch):
        lazy = torch.tensor([1 + 2j, 3 - 4j, 5j]).conj().imag
        torch.save({"a": lazy}, tmp_path / "state.pth")
        arrays, _ = formats.read(str(tmp_path / "state.pth"))
        np.testing.assert_array_equal(arrays["a"].read(), [-2, 4, -5])

    @pytest.mark.parametrize(
        "prefix",
        ["module.", "_orig_mod.", "model.", "net.", "model._orig_mod."],
    )
    @pytest.mark.parametrize("library", ["timm", "huggingface"])
    def test_prefixes_of_training_scripts_are_left_out(
        self, prefix, library, tmp_path, torch
    ):
        arrays = getattr(small_checkpoints, library)()[0]
        state = {f"{prefix}{n}": torch.from_numpy(a) for n, a in arrays.items()}
        path = tmp_path / "last.ckpt"  # as Lightning calls it
        torch.save(dict(state_dict=state, epoch=3), path)
        source = checkpoint.open_checkpoint(path)
        assert (source.family, source.format_name) == ("vit", library)
        checkpoint.check_names(source, source.rules)
        # Not what some names alone have.
        state["head.weight"] = state.pop(next(iter(state)))
        torch.save(state, path)
        assert formats.read(str(path))[0].keys() == state.keys()

    def test_of_several_models_one_is_to_be_saved_alone(self, tmp_path, torch):
        """As of the training of I-JEPA, and "module" of DeepSpeed."""
        state = {"module.norm.weight": torch.zeros(2)}
        for names in (("encoder", "predictor"), ("module",)):
            content = {name: state for name in names} | dict(epoch=3)
            torch.save(content, tmp_path / "last.pth.tar")
            shown = " and ".join(f"`{name}`" for name in names)
            save = f"torch.save(content['{names[0]}'], "
            refused(tmp_path / "last.pth.tar", shown, save)

    @pytest.mark.parametrize("prefix", ["model.", "net._orig_mod."])
    def test_what_is_beside_the_model_is_ignored_with_a_warning(
        self, prefix, tmp_path, torch
    ):
        arrays = small_checkpoints.timm()[0]
        state = {f"{prefix}{n}": torch.from_numpy(a) for n, a in arrays.items()}
        state |= {"criterion.weight": torch.ones(5), "ema.x": torch.ones(2)}
        path = tmp_path / "last.ckpt"
        torch.save(dict(state_dict=state), path)
        with pytest.warns(UserWarning, match=r"2 arrays .*'criterion\.weight'"):
            source = checkpoint.open_checkpoint(path)
        assert source.format_name == "timm"
        checkpoint.check_names(source, source.rules)
        # Which of two models is meant?
        state |= {f"module.{n}": torch.from_numpy(a) for n, a in arrays.items()}
        torch.save(state, path)
        with pytest.raises(ValueError, match="is not a complete ViT"):
            checkpoint.open_checkpoint(path)

    def test_an_averaged_model_counts_its_updates(self, tmp_path, torch):
        model = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 3))
        torch.save(model.state_dict(), tmp_path / "state.pth")
        arrays, _ = formats.read(str(tmp_path / "state.pth"))
        assert set(arrays) == {"weight", "bias"}


class TestSafetensors:
    @pytest.fixture(autouse=True)
    def safetensors(self):
        return pytest.importorskip("safetensors.numpy")

    def test_a_name_twice(self, tmp_path):
        entry = '{"dtype":"F32","shape":[%s],"data_offsets":[0,8]}'
        header = f'{{"a":{entry % "1,2"},"a":{entry % "2"}}}'.encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        refused(path, "'a' is there twice")
        path.rename(tmp_path / "b.safetensors")
        (tmp_path / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}}'
        )
        refused(tmp_path, "'a' is there twice")

    def test_an_index_leads_nowhere_else(self, tmp_path):
        index = dict(weight_map={"a": "../../secret.safetensors"})
        (tmp_path / "model.safetensors.index.json").write_text(
            json.dumps(index)
        )
        refused(tmp_path, "secret.safetensors")

    def test_an_index_lists_what_no_file_has(self, tmp_path, safetensors):
        safetensors.save_file({"a": np.ones(2)}, tmp_path / "1.safetensors")
        index = tmp_path / "model.safetensors.index.json"
        files = {"a": "1.safetensors", "head.bias": "1.safetensors"}
        index.write_text(json.dumps(dict(weight_map=files)))
        refused(tmp_path, "lists ['head.bias'], which no file has")

    def test_an_array_in_two_files_of_an_index(self, tmp_path, safetensors):
        files = dict(a="1.safetensors", b="2.safetensors")
        for name in files.values():
            safetensors.save_file({"a": np.ones(2)}, tmp_path / name)
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps(dict(weight_map=files)))
        refused(tmp_path, "members twice: ['a']")

    def test_the_counted_positions_of_clip_are_not_weights(
        self, tmp_path, safetensors
    ):
        path = tmp_path / "model.safetensors"
        ids = {"vision_model.embeddings.position_ids": np.arange(5)}
        safetensors.save_file({"a": np.ones(2)} | ids, path)
        assert set(formats.read(str(path))[0]) == {"a"}

    def test_a_config_that_is_not_json(self, tmp_path, safetensors):
        arrays = {"patch_embed.proj.weight": np.ones((4, 4), "float32")}
        safetensors.save_file(arrays, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ValueError, match=r"config\.json.*must be JSON"):
            read_all(tmp_path)
