"""Define encoders, from items to features (n, dim), and heads, from features to embeddings (n, d).

encoders.build("resnet18", channels=3, size=32)     a ResNet, a ViT, an MLP, or module:callable
encoders.build("audio_8k", channels=1, samples=4000)    convolutions and a causal context, for sequences
encoders.build_text("minilm", vocabulary=30522)     a transformer over the tokens of a text
encoders.build_head("mlp", encoder.dim, 128)        a projection head
encoders.load_weights(encoder, "resnet18.pth")      weights from torchvision, timm, … or from a run
"""

from likewise.encoders.batch_norm import has_batch_norm, split_batch_norm
from likewise.encoders.bert import Bert
from likewise.encoders.catalog import ENCODERS, build, layout_of, stem_for, takes_any_size
from likewise.encoders.heads import HEADS, StepsAhead, build_head
from likewise.encoders.sequence import SEQUENCE_ENCODERS, SequenceEncoder, hop_of
from likewise.encoders.text import TEXT_ENCODERS, TextTransformer, build_text
from likewise.encoders.weights import load_weights

__all__ = [
    "ENCODERS",
    "HEADS",
    "SEQUENCE_ENCODERS",
    "TEXT_ENCODERS",
    "Bert",
    "SequenceEncoder",
    "StepsAhead",
    "TextTransformer",
    "build",
    "build_head",
    "build_text",
    "has_batch_norm",
    "hop_of",
    "layout_of",
    "load_weights",
    "split_batch_norm",
    "stem_for",
    "takes_any_size",
]
