"""Tokenizers of checkpoints: from strings to the ids of tokens.

A tokenizer is the files of a checkpoint's directory, which it
takes with it into a `.keras` file, and what it makes of them.
"""

import json
import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit.text.tokenizer_kinds import KINDS, canonical, refused

# The files that are read, of which a directory has some.
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.json", "merges.txt", "spiece.model", "words.json"),
    "added_tokens.json",
)
_OPTIONS = "tokenizer_options.json"
_CLASSES = {
    "CLIPTokenizer": "clip",
    "SiglipTokenizer": "siglip",
    "GemmaTokenizer": "gemma",
    "Siglip2Tokenizer": "gemma",
    "T5Tokenizer": "t5",
}


class Tokenizer:
    """Turns strings into ids of tokens, `[B, L]`, padded to one length.

    Longer texts are cut off, which is a warning.

    Args:
        kind: "clip" (byte pairs, lower case), "siglip" (SentencePiece, lower
            case without punctuation), "gemma" (SigLIP 2, lower case), "t5"
            (OpenCLIP's SigLIP) or "words".
        files: Name of a file -> its bytes; see `FILES`.
        context_length: Tokens L of a text, the end included.
        canonical: Whether texts are put into lower case and lose their
            punctuation before, as OpenCLIP's SigLIP asks for.

    The files are read when it is first called, which raises a ValueError if
    they are damaged, or a library is absent.

    Example:
        tokenizer = keras_vit.text.word_tokenizer(["a", "red", "car"], 8)
        ids = tokenizer(["A red car.", "a bike"])
    """

    def __init__(
        self,
        kind: str,
        files: dict[str, bytes],
        context_length: int,
        canonical: bool = False,
    ):
        self.kind = kind
        self.files = dict(files)
        self.context_length = context_length
        self.canonical = canonical
        self._parts: Any = None

    def _read(self):
        """Return what `KINDS` says."""
        if self._parts is None:
            self._parts = self._load()
        return self._parts

    def _load(self):
        if self.kind not in KINDS:
            raise ValueError(
                f"A tokenizer of the class {self.kind!r} is not supported; "
                "those of CLIP, SigLIP and SigLIP 2 are. Give ids in place of "
                "strings."
            )
        try:
            parts = KINDS[self.kind](self)
            others = refused(self, parts[-1])
        except (KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
            if "pip install" in str(error):
                raise
            raise ValueError(
                f"The files of a tokenizer of kind {self.kind!r}, "
                f"{sorted(self.files)}, are incomplete or damaged: {error!r}. "
                "Fetch them again."
            ) from error
        if others:
            raise ValueError(
                f"A tokenizer of kind {self.kind!r} with "
                f"{', '.join(others[:3])} is not supported. Give ids in place "
                "of strings."
            )
        return parts

    @property
    def vocab_size(self) -> int:
        """Number of tokens; ids are below it."""
        return self._read()[3]

    @property
    def end_token(self) -> int:
        """The id that ends a text."""
        ids, _ = self._read()[0]("", self.context_length)
        if not ids:
            raise ValueError(
                f"A tokenizer of kind {self.kind!r} must end texts with a "
                "token. Received: one that makes no ids of an empty text"
            )
        return int(ids[-1])

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the ids of texts, `[B, L]` of int32.

        Args:
            texts: The strings.

        Raises:
            TypeError: If they are not strings.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(
                    f"`texts` must be strings. Received: {text!r}, of "
                    f"{type(text)}"
                )
        encode, padding, is_left, *_ = self._read()
        length = self.context_length
        ids = np.full((len(texts), length), padding, "int32")
        cut = []
        for row, text in zip(ids, texts, strict=True):
            cleaned = canonical(text) if self.canonical else text
            found, is_cut = encode(cleaned, length)
            if is_left:
                row[length - len(found) :] = found
            else:
                row[: len(found)] = found
            if is_cut:
                cut.append(text)
        if cut:
            warnings.warn(
                f"{len(cut)} of {len(texts)} texts have more than {length} "
                "tokens, of which the rest is cut off. The first begins with "
                f"{cut[0][:60]!r}",
                stacklevel=2,
            )
        return ids

    @classmethod
    def from_directory(
        cls, folder: str | os.PathLike, context_length: int
    ) -> "Tokenizer | None":
        """Return the tokenizer of a directory; None if it has no files of one.

        Args:
            folder: The directory of a checkpoint.
            context_length: Tokens of a text.
        """
        files = _read(folder)
        kind = _kind_of(files)
        if kind is None:
            return None
        clean = _cleaning(folder)
        if clean not in _CLEANINGS.get(kind, _CLEANINGS[""]):
            raise ValueError(
                "`clean` of a tokenizer of OpenCLIP must be one of "
                f"{_CLEANINGS.get(kind, _CLEANINGS[''])} for one of kind "
                f"{kind!r}. Received: {clean!r} in {os.fspath(folder)!r}"
            )
        canonical = clean == "canonicalize" or _options(folder).get("canonical")
        return cls(kind, files, context_length, bool(canonical))

    def save_files(self, folder: str | os.PathLike) -> None:
        """Write the files of the checkpoint to a directory.

        Files of another tokenizer there, which would be read, are removed. Its
        own files do not say that texts are made canonical; a further one does.

        Args:
            folder: The directory.
        """
        for name in {*FILES, _OPTIONS} - set(self.files):
            pathlib.Path(folder, name).unlink(missing_ok=True)
        if self.canonical:
            self._save_options(folder)
        for name, data in self.files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)

    def save(self, folder: str | os.PathLike) -> None:
        """Write all of it to a directory, for `load`.

        Args:
            folder: The directory.
        """
        self.save_files(folder)
        self._save_options(folder)

    def _save_options(self, folder):
        names = ("kind", "context_length", "canonical")
        options = {name: getattr(self, name) for name in names}
        path = os.path.join(folder, _OPTIONS)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(options, file)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Tokenizer":
        """Return the tokenizer that `save` wrote.

        Args:
            folder: The directory.
        """
        return cls(files=_read(folder), **_options(folder))

    def config(self) -> dict:
        """Return the object in tokenizer_config.json, with special tokens."""
        found = json.loads(self.files.get("tokenizer_config.json", b"{}"))
        # As in transformers, which reads the older file of special tokens only
        # where the config does not list the added ones.
        if "added_tokens_decoder" not in found:
            found |= json.loads(
                self.files.get("special_tokens_map.json", b"{}")
            )
        return found


@checked
def word_tokenizer(words: Sequence[str], context_length: Count) -> Tokenizer:
    """Return a tokenizer of whole words in lower case, without punctuation.

    Its ids are 0, the padding; 1, any other word; 2, the end of a text; and
    from 3 on the words.

    Args:
        words: The words, without repetitions.
        context_length: Tokens L of a text, the end included.

    Example:
        tokenizer = keras_vit.text.word_tokenizer(["a", "red", "car"], 8)
    """
    data = json.dumps(list(words)).encode()
    return Tokenizer("words", {"words.json": data}, context_length)


def _options(folder):
    """Return what `save` wrote beside the files, {} without."""
    path = pathlib.Path(folder, _OPTIONS)
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _read(folder):
    found = {}
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[name] = file.read()
    return found


# What OpenCLIP does to texts before. CLIP's tokenizer itself makes letters
# small and joins white space.
_CLEANINGS: dict[str, tuple] = {
    "clip": (None, "canonicalize", "lower", "whitespace"),
    "": (None, "canonicalize", "whitespace"),
}


def _cleaning(folder):
    """Return how a directory of OpenCLIP cleans texts; None if not stated."""
    path = os.path.join(folder, "open_clip_config.json")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for key in ("model_cfg", "text_cfg", "tokenizer_kwargs"):
        config = config.get(key) or {}
    return config.get("clean")


def _kind_of(files):
    """Return the kind of a tokenizer by its files, or None without any."""
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    name = str(config.get("tokenizer_class", "")).removesuffix("Fast")
    if name in _CLASSES:
        return _CLASSES[name]
    if "spiece.model" in files:
        return "siglip"
    if "tokenizer.json" in files:
        model = json.loads(files["tokenizer.json"]).get("model", {})
        if model.get("byte_fallback"):
            return "gemma"
        if model.get("end_of_word_suffix") == "</w>":
            return "clip"
        return name or "unknown"
    return "clip" if {"vocab.json", "merges.txt"} <= set(files) else None
