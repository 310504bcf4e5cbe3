"""The kinds of tokenizers: what each makes of its files.

Each function of `KINDS` takes a `Tokenizer` and returns a function from a text
and a length to its ids and whether it was cut off, the id of the padding,
whether that is on the left, the number of tokens, and the strings of tokens
that are found before all others. They give the ids of transformers 5.24, whose
classes they name, by the same libraries.
"""

import html
import importlib
import json
import re
import string
from collections.abc import Callable


def canonical(text: str) -> str:
    """Return a text in lower case without punctuation, as OpenCLIP's SigLIP.

    What it repairs by ftfy, letters of a wrong encoding, stays as it is.

    Args:
        text: The text, in which HTML's entities stand for their letters.
    """
    text = html.unescape(html.unescape(text)).replace("_", " ")
    text = text.translate(_NO_MARKS).lower()
    return re.sub(r"\s+", " ", text).strip()


_NO_MARKS = str.maketrans("", "", string.punctuation)


def _content(token):
    """Return the string of a token in a config, which may be an object."""
    return token["content"] if isinstance(token, dict) else token


def refused(tokenizer, special: set[str]) -> list[str]:
    """List what the files ask for and no function of `KINDS` does.

    Args:
        tokenizer: The `Tokenizer`.
        special: The tokens that are found before all others.
    """
    config = tokenizer.config()
    added = config.get("added_tokens_decoder")
    if added is None:
        added = json.loads(tokenizer.files.get("added_tokens.json", b"{}"))
    else:
        added = added.values()
    extra = config.get("extra_special_tokens") or ()
    rows = [
        *added,
        *(config.get("additional_special_tokens") or ()),
        *(extra.values() if isinstance(extra, dict) else extra),
        *(row for key, row in config.items() if key.endswith("_token")),
    ]
    names = [_content(row) for row in rows if isinstance(row, (str, dict))]
    return [
        *(
            f"{key}={value!r}"
            for key, value in (
                ("truncation_side", "left"),
                ("split_special_tokens", True),
            )
            if config.get(key) == value
        ),
        *(f"the added token {n!r}" for n in names if n not in special),
    ]


def _library(name):
    """Return an imported library, which users install for it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(
            f"This tokenizer needs {name}: pip install {name}, or the extra "
            "`text` of keras_vit."
        ) from None


def _added_tokens(config, model, defaults):
    """Return the special tokens as objects of `tokenizers`.

    Args:
        config: tokenizer_config.json.
        model: tokenizer.json, or {}.
        defaults: Their strings, if neither lists them.
    """
    make = _library("tokenizers").AddedToken
    listed = list((config.get("added_tokens_decoder") or {}).values())
    known = {row["content"]: row for row in model.get("added_tokens", [])}
    known |= {row["content"]: row for row in listed}
    rows = [known.get(name, dict(content=name)) for name in defaults]
    rows += [row for row in known.values() if row not in rows]
    keys = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [
        make(
            row["content"],
            **{"normalized": False, "special": True}
            | {key: row[key] for key in keys if key in row},
        )
        for row in rows
    ]


def _by_library(tokenizer, library, padding: str):
    """Return what `Tokenizer` needs of an object of `tokenizers`."""

    def encode(text, length):
        library.enable_truncation(length)
        found = library.encode(text)
        return found.ids, bool(found.overflowing)

    library.no_padding()
    is_left = tokenizer.config().get("padding_side") == "left"
    number = library.token_to_id(padding)
    if number is None:
        raise ValueError(f"expected the padding {padding!r} in its vocabulary")
    added = library.get_added_tokens_decoder().values()
    special = {token.content for token in added}
    return encode, number, is_left, library.get_vocab_size(), special


def _clip(tokenizer):
    """Byte pairs of words in lower case, as `CLIPTokenizer`."""
    library, files = _library("tokenizers"), tokenizer.files
    config, model = tokenizer.config(), {}
    if "tokenizer.json" in files:
        model = json.loads(files["tokenizer.json"])
        vocab = model["model"]["vocab"]
        merges = model["model"]["merges"]
        merges = [m.split(" ") if isinstance(m, str) else m for m in merges]
    else:
        vocab = json.loads(files["vocab.json"])
        lines = files["merges.txt"].decode().splitlines()
        merges = [
            line.split()
            for line in lines
            if line.strip() and not line.startswith("#version")
        ]
    end = _content(config.get("eos_token") or "<|endoftext|>")
    start = _content(config.get("bos_token") or "<|startoftext|>")
    unknown = _content(config.get("unk_token") or "<|endoftext|>")
    padding = _content(config.get("pad_token") or "<|endoftext|>")
    own = library.Tokenizer(
        library.models.BPE(
            vocab=vocab,
            merges=[tuple(m) for m in merges],
            continuing_subword_prefix="",
            end_of_word_suffix="</w>",
            fuse_unk=False,
            unk_token=unknown,
        )
    )
    own.normalizer = library.normalizers.Sequence(
        [
            library.normalizers.NFC(),
            library.normalizers.Replace(library.Regex(r"\s+"), " "),
            library.normalizers.Lowercase(),
        ]
    )
    words = (
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d"
        r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    )
    splits = library.pre_tokenizers
    own.pre_tokenizer = splits.Sequence(
        [
            splits.Split(library.Regex(words), "removed", invert=True),
            splits.ByteLevel(add_prefix_space=False),
        ]
    )
    own.add_tokens(_added_tokens(config, model, [start, end, padding]))
    start_id, end_id = own.token_to_id(start), own.token_to_id(end)
    own.post_processor = library.processors.RobertaProcessing(
        (end, end_id),
        (start, start_id),
        trim_offsets=False,
        add_prefix_space=False,
    )
    return _by_library(tokenizer, own, padding)


def _t5(tokenizer):
    """Pieces of what tokenizer.json says, as OpenCLIP's SigLIP."""
    library, config = _library("tokenizers"), tokenizer.config()
    own = library.Tokenizer.from_str(tokenizer.files["tokenizer.json"].decode())
    padding = _content(config.get("pad_token") or "</s>")
    return _by_library(tokenizer, own, padding)


def _gemma(tokenizer):
    """Gemma's byte pairs of a text in lower case, as `Siglip2Tokenizer`."""
    library, config = _library("tokenizers"), tokenizer.config()
    own = library.Tokenizer.from_str(tokenizer.files["tokenizer.json"].decode())
    lower = library.normalizers.Lowercase()
    others = [] if own.normalizer is None else [own.normalizer]
    own.normalizer = library.normalizers.Sequence([lower, *others])
    if own.post_processor is None:
        parts = ["$A"]
        ends = dict(bos=_content(config.get("bos_token") or "<bos>"))
        ends["eos"] = _content(config.get("eos_token") or "<eos>")
        if config.get("add_bos_token"):
            parts.insert(0, ends["bos"])
        if config.get("add_eos_token"):
            parts.append(ends["eos"])
        own.post_processor = library.processors.TemplateProcessing(
            single=parts,
            special_tokens=[(x, own.token_to_id(x)) for x in ends.values()],
        )
    padding = _content(config.get("pad_token") or "<pad>")
    return _by_library(tokenizer, own, padding)


def _siglip(tokenizer):
    """SentencePiece of lower case without punctuation: `SiglipTokenizer`."""
    library, config = _library("sentencepiece"), tokenizer.config()
    own = library.SentencePieceProcessor()
    own.LoadFromSerializedProto(tokenizer.files["spiece.model"])
    names = [
        _content(config.get(key) or default)
        for key, default in (
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("pad_token", "</s>"),
        )
    ]
    end, _, padding = (own.piece_to_id(name) for name in names)
    unknown, special = names[1], dict.fromkeys(names)
    cut = re.compile(f"({'|'.join(map(re.escape, special))})")
    is_lower = config.get("do_lower_case", True)
    size = len(own.encode(unknown))
    underline = "\u2581"

    def pieces(text):
        text = text.lower() if is_lower else text
        text = re.sub(r"\s+", " ", text.translate(_NO_MARKS)).strip()
        # The prefix keeps SentencePiece from removing the first underline.
        found = own.encode(unknown + text, out_type=str)
        return found[size:] if len(found) >= size else found

    def encode(text, length):
        parts = cut.split(underline + text.replace(underline, " "))
        found = []
        for i, part in enumerate(parts):
            if part in special:
                found.append(part)
                continue
            # Special tokens take the spaces around them.
            part = part.lstrip() if i else part
            part = part.rstrip() if i < len(parts) - 1 else part
            found += pieces(part) if part else []
        if len(found) > 1 and found[0] == underline and found[1] in special:
            found = found[1:]
        ids = [own.piece_to_id(piece) for piece in found]
        is_cut = len(ids) > length - 1
        ids = ids[: length - 1]
        return ids + [end] * (not ids or ids[-1] != end), is_cut

    is_left = config.get("padding_side") == "left"
    return encode, padding, is_left, own.vocab_size(), set(special)


def _words(tokenizer):
    words = json.loads(tokenizer.files["words.json"])
    number = {word.lower(): i for i, word in enumerate(words, 3)}

    def encode(text, length):
        found = re.findall(r"\w+", text.lower())
        ids = [number.get(word, 1) for word in found[: length - 1]]
        return [*ids, 2], len(found) > length - 1

    return encode, 0, False, len(words) + 3, set()


KINDS: dict[str, Callable] = {
    "clip": _clip,
    "siglip": _siglip,
    "gemma": _gemma,
    "t5": _t5,
    "words": _words,
}
