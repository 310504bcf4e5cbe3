"""Text towers and tokenizers, and models that join images and texts."""

from keras_vit.text import released as _released
from keras_vit.text.naflex import NaFlexModel as NaFlexModel
from keras_vit.text.tokenizers import Tokenizer as Tokenizer
from keras_vit.text.tokenizers import word_tokenizer as word_tokenizer
from keras_vit.text.tower import TextConfig as TextConfig
from keras_vit.text.tower import TextModel as TextModel
from keras_vit.text.tower import text_tower as text_tower
from keras_vit.text.two_towers import NaFlexTowers as NaFlexTowers
from keras_vit.text.two_towers import TwoTowers as TwoTowers
from keras_vit.text.two_towers import two_towers as two_towers
from keras_vit.text.word_detector import WordDetector as WordDetector
from keras_vit.text.zero_shot import TEMPLATES as TEMPLATES
from keras_vit.text.zero_shot import zero_shot as zero_shot
