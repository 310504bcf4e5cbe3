"""Tokenizers give the library's ids, of tiny vocabularies made here."""

import io
import json

import numpy as np
import pytest

import keras_vit
from keras_vit.text import Tokenizer
from keras_vit.text.tokenizer_kinds import canonical

pytestmark = pytest.mark.backend_independent
tokenizers = pytest.importorskip("tokenizers")
sentencepiece = pytest.importorskip("sentencepiece")

CORPUS = [
    "a photo of a cat. two dogs, and the red car's wheels!",
    "ein Foto einer Katze; une voiture rouge: 2 gatos y 17 perros",
    "Straße naïve Ünïcödé Привет мир Γειά σου שלום عالم 東京の猫 고양이",
]
STRINGS = [
    *("", " ", "\t\n a  cat \u00a0 ", "A PHOTO of a Cat.", "cat's dogs'll I'm"),
    *("e\u0301 vs é", "ÅÄÖ ß ẞ İ", "x" * 300, "a, b; c! (d) [e] {f} <g>"),
    *("🐈 👩‍👩‍👧 🇩🇪", "東京の猫", "Привет, мир!", "שלום עולם", "▁under▁line"),
    *("1234 5.6", "<|endoftext|> a", "</s> a cat </s>", "<unk>x", "a </s>"),
    *("a <|startoftext|> B", "\u200b\ufeff\x00\x07", "don't  'S", "#@%&*_-+="),
]


def strings(count, seed=0):
    """Returns strings of all scripts, special tokens and odd spaces."""
    rng = np.random.default_rng(seed)
    words = " ".join(STRINGS + CORPUS).split() + ["\n", "  ", "<eos>", "</s>"]
    planes = ((32, 127), (160, 0x700), (0x900, 0x1200), (0x3040, 0xD7A4))
    planes += ((0x1F300, 0x1F700), (0x2000, 0x2100))
    found = list(STRINGS)
    while len(found) < count:
        low, high = planes[rng.integers(len(planes))]
        mixed = rng.choice(words, rng.integers(1, 6)).tolist()
        mixed.append("".join(map(chr, rng.integers(low, high, 4))))
        found.append(" ".join(map(str, rng.permutation(mixed))))
    return found + ["a red car " * 1000]


def write_clip(folder, with_json):
    marks = ["<|startoftext|>", "<|endoftext|>"]
    own = tokenizers.Tokenizer(
        tokenizers.models.BPE(end_of_word_suffix="</w>", unk_token=marks[1])
    )
    splits = tokenizers.pre_tokenizers
    own.pre_tokenizer = splits.Sequence(
        [splits.WhitespaceSplit(), splits.ByteLevel(add_prefix_space=False)]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700,
        end_of_word_suffix="</w>",
        special_tokens=marks,
        initial_alphabet=splits.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator([text.lower() for text in CORPUS], trainer)
    model = json.loads(own.to_str())["model"]
    vocab = model["vocab"]
    for letter in splits.ByteLevel.alphabet():
        vocab.setdefault(f"{letter}</w>", len(vocab))
    (folder / "vocab.json").write_text(json.dumps(vocab))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    text = "\n".join(["#version: 0.2", *merges])
    (folder / "merges.txt").write_text(text, encoding="utf-8")
    if with_json:
        content = json.loads(own.to_str())
        content["model"]["vocab"] = vocab
        (folder / "tokenizer.json").write_text(json.dumps(content))
    config = dict(tokenizer_class="CLIPTokenizer", model_max_length=12)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_siglip(folder):
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t.lower() for t in CORPUS] * 3),
        model_writer=data,
        vocab_size=150,
        hard_vocab_limit=False,
        character_coverage=1.0,
        pad_id=-1,
        bos_id=-1,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(data.getvalue())
    config = dict(tokenizer_class="SiglipTokenizer")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_gemma(folder):
    marks = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    own = tokenizers.Tokenizer(
        tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True)
    )
    own.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    own.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        " ", "merged_with_previous"
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=marks + [f"<0x{i:02X}>" for i in range(256)],
        show_progress=False,
    )
    own.train_from_iterator([text.lower() for text in CORPUS], trainer)
    content = json.loads(own.to_str())
    content["model"]["fuse_unk"] = True
    content["added_tokens"] = content["added_tokens"][: len(marks)]
    end, text = {"SpecialToken": dict(id="<eos>", type_id=0)}, {}
    text["Sequence"] = dict(id="A", type_id=0)
    content["post_processor"] = dict(
        type="TemplateProcessing",
        single=[text, end],
        pair=[text, end],
        special_tokens={"<eos>": dict(id="<eos>", ids=[1], tokens=["<eos>"])},
    )
    (folder / "tokenizer.json").write_text(json.dumps(content))
    config = dict(tokenizer_class="Siglip2Tokenizer", padding_side="right")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_t5(folder):
    """As OpenCLIP's SigLIP, whose texts are cleaned before."""
    own = tokenizers.Tokenizer(tokenizers.models.Unigram())
    own.normalizer = tokenizers.normalizers.NFKC()
    own.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=150,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    own.train_from_iterator([text.lower() for text in CORPUS], trainer)
    own.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    own.save(str(folder / "tokenizer.json"))
    config = dict(
        tokenizer_class="T5Tokenizer",
        extra_ids=0,
        eos_token="</s>",
        pad_token="</s>",
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    asked = dict(text_cfg=dict(tokenizer_kwargs=dict(clean="canonicalize")))
    (folder / "open_clip_config.json").write_text(
        json.dumps(dict(model_cfg=asked))
    )


def test_cleaning_that_is_not_done_is_refused(tmp_path):
    pytest.importorskip("tokenizers")
    write_t5(tmp_path)
    asked = dict(text_cfg=dict(tokenizer_kwargs=dict(clean="lower")))
    (tmp_path / "open_clip_config.json").write_text(
        json.dumps(dict(model_cfg=asked))
    )
    with pytest.raises(ValueError, match="`clean`.*Received: 'lower'"):
        Tokenizer.from_directory(tmp_path, 8)


def test_files_of_a_tokenizer_are_its_own_and_say_how_texts_are_cleaned(
    tmp_path,
):
    pytest.importorskip("tokenizers")
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    write_t5(tmp_path / "old")
    (tmp_path / "new/vocab.json").write_text("{}")
    tokenizer = Tokenizer.from_directory(tmp_path / "old", 8)
    tokenizer.save_files(tmp_path / "new")
    again = Tokenizer.from_directory(tmp_path / "new", 8)
    assert tokenizer.canonical and again.canonical
    assert again.files == tokenizer.files


KINDS = {
    "clip": ("CLIPTokenizer", lambda folder: write_clip(folder, False)),
    "clip json": ("CLIPTokenizer", lambda folder: write_clip(folder, True)),
    "siglip": ("SiglipTokenizer", write_siglip),
    "gemma": ("Siglip2Tokenizer", write_gemma),
    "t5": ("PreTrainedTokenizerFast", write_t5),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(kind, tmp_path, transformers):
    name, write = KINDS[kind]
    write(tmp_path)
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    texts = strings(1000)
    cleaned = map(canonical, texts) if kind == "t5" else texts
    expected = theirs(
        list(cleaned), padding="max_length", max_length=12, truncation=True
    )["input_ids"]
    found = Tokenizer.from_directory(tmp_path, 12)(texts)
    wrong = [
        (text[:40], own.tolist(), other)
        for text, own, other in zip(texts, found, expected, strict=True)
        if own.tolist() != other
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_padded_and_cut_off(kind, tmp_path):
    KINDS[kind][1](tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path, 12)
    once = tokenizer(["a Cat"])
    assert once.shape == (1, 12) and once.dtype == "int32"
    assert once.max() < tokenizer.vocab_size < 1000
    np.testing.assert_array_equal(once, tokenizer(["a cat"]))
    assert tokenizer.end_token in once[0]
    with pytest.warns(UserWarning, match="1 of 2 texts have more than 12"):
        ids = tokenizer(["a cat", "red car " * 20])
    assert ids[1, -1] == tokenizer.end_token
    np.testing.assert_array_equal(ids[0], once[0])
    length = once[0].tolist().index(tokenizer.end_token) + 1
    just = Tokenizer.from_directory(tmp_path, length)(["a cat"])
    np.testing.assert_array_equal(just, once[:, :length])
    with pytest.warns(UserWarning, match="1 of 1 texts have more than"):
        Tokenizer.from_directory(tmp_path, length - 1)(["a cat"])
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config = json.dumps(config | dict(padding_side="left"))
    (tmp_path / "tokenizer_config.json").write_text(config)
    left = Tokenizer.from_directory(tmp_path, 12)(["a cat"])
    np.testing.assert_array_equal(left[:, -length:], just)
    copy = tmp_path / "copy"
    copy.mkdir()
    tokenizer.save(copy)
    np.testing.assert_array_equal(Tokenizer.load(copy)(["a cat"]), once)


def change_config(folder, **changes):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(truncation_side="left"), "truncation_side='left'"),
        (dict(split_special_tokens=True), "split_special_tokens=True"),
        (dict(additional_special_tokens=["cat"]), "token 'cat'"),
        (dict(extra_special_tokens=dict(toy="cat")), "token 'cat'"),
        (dict(mask_token=dict(content="cat")), "token 'cat'"),
        (None, "token '<toy>'"),
    ],
    ids=str,
)
def test_what_is_not_applied_is_refused(kind, changes, words, tmp_path):
    KINDS[kind][1](tmp_path)
    if changes is None:  # as of transformers before version 5
        (tmp_path / "added_tokens.json").write_text('{"<toy>": 700}')
    else:
        change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"{words} is not supported"):
        Tokenizer.from_directory(tmp_path, 12)(["a <toy> cat"])


@pytest.mark.parametrize("kind", ["siglip", "gemma"])
def test_an_added_token_is_refused(kind, tmp_path):
    KINDS[kind][1](tmp_path)
    added = dict(content="<toy>", lstrip=False, rstrip=False)
    change_config(tmp_path, added_tokens_decoder={"700": added})
    with pytest.raises(ValueError, match="token '<toy>' is not supported"):
        Tokenizer.from_directory(tmp_path, 12)(["a <toy> cat"])


def test_the_file_of_special_tokens_precedes_a_config_without_added_ones(
    tmp_path,
):
    write_clip(tmp_path, False)
    change_config(tmp_path, pad_token="<|endoftext|>")
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "!"}')
    padding = json.loads((tmp_path / "vocab.json").read_text())["!"]
    assert Tokenizer.from_directory(tmp_path, 4)([""])[0, -1] == padding
    change_config(tmp_path, added_tokens_decoder={})
    assert Tokenizer.from_directory(tmp_path, 4)([""])[0, -1] != padding


def test_canonical_texts_have_no_marks():
    assert canonical(" A_red  car's\n&lt;wheel&gt;! ") == "a red cars wheel"


def test_words_are_numbered():
    tokenizer = keras_vit.text.word_tokenizer(["Red", "car"], 4)
    ids = tokenizer(["a RED car!", ""])
    assert ids.tolist() == [[1, 3, 4, 2], [2, 0, 0, 0]]
    with pytest.warns(UserWarning, match="1 of 1 texts have more than 4"):
        assert tokenizer(["red red red red"]).tolist() == [[3, 3, 3, 2]]
    with pytest.raises(TypeError, match="must be strings"):
        tokenizer([3])


def test_other_tokenizers_are_refused_by_name(tmp_path):
    assert Tokenizer.from_directory(tmp_path, 8) is None
    config = dict(tokenizer_class="XLMRobertaTokenizer")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(dict(model={})))
    tokenizer = Tokenizer.from_directory(tmp_path, 8)
    with pytest.raises(ValueError, match="class 'XLMRobertaTokenizer' is not"):
        tokenizer(["a"])
    config = dict(tokenizer_class="CLIPTokenizer")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="incomplete or damaged"):
        Tokenizer.from_directory(tmp_path, 8)(["a"])
