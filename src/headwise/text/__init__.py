"""Tokenisation: text -> token ids and back. The special tokens are the same for every tokeniser."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
