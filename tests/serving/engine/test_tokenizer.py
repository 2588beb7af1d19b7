import itertools
import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.tiny_models import tiny_tokenizer
from tokenizers import AddedToken, decoders, models, normalizers, processors

from ridgeline.errors import ModelError
from ridgeline.serving.engine.gguf_format import read_head
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.tokenizer import BYTE_OF, Detokenizer, Tokenizer

BACKEND = tiny_tokenizer()
TINY = Tokenizer(BACKEND, bos_id=1, adds_bos=False)
IDS = st.lists(st.integers(0, TINY.vocab_size - 1), max_size=40)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

# Words cut by hand as SmolLM2's rule demands (each digit alone, then GPT-2's rule), and the ids.
SMOLLM2_IDS = {
    ("abc", "  ", "1", "2"): [25276, 256, 33, 34],
    ("½",): [16738],
    ("2", "0", "2", "4"): [34, 32, 34, 36],
    ("🙂",): [10813, 38887],
    ("Hello", ",", " world", "!"): [19556, 28, 905, 17],
    ("def", " f", "(", "x", "):", "\n   ", " return", " x"): [
        *(1604, 275, 24, 104, 727),
        *(472, 1003, 1792),
    ],
    (" don", "'t", " ", "3", ".", "1", "4", "\n\n"): [1326, 982, 216, 35, 30, 33, 36, 1116],
    ("日本語",): [23274, 115, 40993, 179, 120, 248],
    (): [],
}


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    assert SMOLLM2 is not None
    return open_model(SMOLLM2).tokenizer


@needs_smollm2
@pytest.mark.parametrize("words", SMOLLM2_IDS)
def test_smollm2s_known_ids(smollm2: Tokenizer, words: tuple[str, ...]) -> None:
    text = "".join(words)
    assert smollm2.encode(text) == SMOLLM2_IDS[words]
    assert smollm2.decode(SMOLLM2_IDS[words]) == text


@needs_smollm2
@pytest.mark.parametrize("words", SMOLLM2_IDS)
def test_the_known_ids_are_those_of_the_plainest_byte_pair_encoding(words: tuple[str, ...]) -> None:
    assert SMOLLM2 is not None
    metadata = read_head(SMOLLM2).metadata
    ids = {text: index for index, text in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {pair: rank for rank, pair in enumerate(metadata["tokenizer.ggml.merges"])}
    pieces = [piece for word in words for piece in merged(word, ranks)]
    assert [ids[piece] for piece in pieces] == SMOLLM2_IDS[words]


def merged(word: str, ranks: dict[str, int]) -> list[str]:
    """The definition of BPE: of all neighbours, merge those first that were learned first."""
    spelling = {byte: character for character, byte in BYTE_OF.items()}
    pieces = [spelling[byte] for byte in word.encode()]
    while True:
        pairs = [f"{a} {b}" for a, b in itertools.pairwise(pieces)]
        known = [(ranks[pair], at) for at, pair in enumerate(pairs) if pair in ranks]
        if not known:
            return pieces
        _, at = min(known)
        pieces[at : at + 2] = ["".join(pieces[at : at + 2])]


@needs_smollm2
def test_a_chats_turn_begins_with_its_token(smollm2: Tokenizer) -> None:
    assert smollm2.encode("<|im_start|>user\n") == [1, 4093, 198]


@given(TEXTS)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    ids = TINY.encode(text, special=False)
    assert TINY.decode(ids) == text
    assert b"".join(map(TINY.token_bytes, ids)) == text.encode()


@given(IDS)
def test_any_ids_decode_as_the_tokenizers_package_decodes_them(ids: list[int]) -> None:
    assert TINY.decode(ids) == BACKEND.decode(ids, skip_special_tokens=True)
    assert TINY.decode(ids, skip_special=False) == BACKEND.decode(ids, skip_special_tokens=False)


@given(ids=IDS, cuts=st.lists(st.integers(0, 40)), skip_special=st.booleans())
def test_a_streams_pieces_joined_are_the_whole_text(
    ids: list[int], cuts: list[int], skip_special: bool
) -> None:
    detokenizer = Detokenizer(TINY, skip_special=skip_special)
    borders = [0, *sorted(cuts), len(ids)]
    pieces = [detokenizer.feed(ids[start:end]) for start, end in itertools.pairwise(borders)]
    joined = "".join(pieces) + detokenizer.flush()
    assert joined == TINY.decode(ids, skip_special=skip_special, begins_text=False)


@given(TEXTS)
def test_a_valid_text_never_shows_a_replacement_character(text: str) -> None:
    text = text.replace("\ufffd", "")
    detokenizer = Detokenizer(TINY)
    pieces = [detokenizer.feed((index,)) for index in TINY.encode(text, special=False)]
    assert "\ufffd" not in "".join(pieces)
    assert detokenizer.flush() == ""
    assert "".join(pieces) == text


def test_a_character_appears_with_its_last_byte() -> None:
    detokenizer = Detokenizer(TINY)
    spelled = TINY.encode("a\U0001f701b", special=False)
    runs = [TINY.token_bytes(index) for index in spelled]
    assert runs == [b"a", b"\xf0", b"\x9f", b"\x9c", b"\x81", b"b"]
    assert [detokenizer.feed((index,)) for index in spelled] == ["a", "", "", "", "\U0001f701", "b"]


def test_half_a_character_at_the_end_is_shown_once_as_a_replacement() -> None:
    detokenizer = Detokenizer(TINY)
    half = TINY.encode("é", special=False)[:1]
    assert TINY.token_bytes(half[0]) == "é".encode()[:1]
    assert detokenizer.feed(half) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_every_byte_has_a_token() -> None:
    single = {TINY.token_bytes(index) for index in range(TINY.vocab_size)}
    assert {bytes([byte]) for byte in range(256)} <= single


def test_special_texts_are_tokens_only_where_they_may_be() -> None:
    text = "a<|im_end|>"
    assert TINY.encode(text) == [*TINY.encode("a"), 2]
    literal = TINY.encode(text, special=False)
    assert 2 not in literal
    assert TINY.decode(literal) == text
    assert TINY.encode(text) == [*TINY.encode("a"), 2]  # the literal reading left no trace


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    ids = TINY.encode("<|im_start|>a<|im_end|>")
    assert TINY.decode(ids) == "a"
    assert TINY.decode(ids, skip_special=False) == "<|im_start|>a<|im_end|>"
    assert TINY.token_bytes(2) == b"<|im_end|>"
    assert TINY.token_id("<|im_end|>") == 2
    assert TINY.token_id("nothing") is None


@pytest.mark.parametrize("index", [-1, 300, 1 << 40])
def test_an_id_without_a_text_is_empty(index: int) -> None:
    assert TINY.token_bytes(index) == b""
    assert TINY.decode([index]) == ""


def test_a_beginning_is_put_once_and_only_where_there_is_one() -> None:
    assert TINY.encode("a", add_bos=True) == [1, *TINY.encode("a")]
    assert TINY.encode("<|im_start|>a", add_bos=True) == TINY.encode("<|im_start|>a")
    assert TINY.encode("", add_bos=True) == [1]
    without = Tokenizer(tiny_tokenizer(), bos_id=None, adds_bos=True)
    assert without.encode("a", add_bos=True) == TINY.encode("a")
    assert not without.adds_bos


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert TINY.decode(TINY.encode("a\ud800b🙂")) == "a\ufffdb🙂"


def test_json_makes_an_equal_tokenizer() -> None:
    again = Tokenizer.from_json(TINY.to_json(), bos_id=1)
    text = "the <|im_end|> 2024 ½"
    assert again.encode(text) == TINY.encode(text)
    assert again.special_ids == TINY.special_ids == {0, 1, 2}


def test_whether_a_beginning_is_expected_is_read_off_the_post_processor() -> None:
    backend = tiny_tokenizer()
    assert not Tokenizer.from_json(backend.to_str(), bos_id=1).adds_bos
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    tokenizer = Tokenizer.from_json(backend.to_str(), bos_id=1)
    assert tokenizer.adds_bos
    assert tokenizer.encode("a") == TINY.encode("a")
    assert not Tokenizer.from_json(backend.to_str(), bos_id=1, adds_bos=False).adds_bos


def test_truncation_and_padding_in_the_file_do_not_apply() -> None:
    backend = tiny_tokenizer()
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    tokenizer = Tokenizer.from_json(backend.to_str(), bos_id=1)
    assert tokenizer.encode("abc, def") == TINY.encode("abc, def")


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Llama 2's and Mistral's kind: ▁ for spaces, bytes where no piece fits."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "▁a", "ab", "▁ab"]
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab")]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return backend


@given(st.text("ab ½🙂\n", max_size=20))
def test_sentencepiece_like_vocabularies_decode_as_the_package_does(text: str) -> None:
    backend = sentencepiece_like()
    tokenizer = Tokenizer(backend, bos_id=1, adds_bos=True)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == backend.decode(ids) == text
    detokenizer = Detokenizer(tokenizer)
    pieces = "".join([detokenizer.feed((index,)) for index in ids]) + detokenizer.flush()
    assert pieces == tokenizer.decode(ids, begins_text=False)


def test_sentencepiece_like_tokens_are_bytes() -> None:
    tokenizer = Tokenizer(sentencepiece_like(), bos_id=1, adds_bos=True)
    assert tokenizer.token_bytes(3 + 0xF0) == b"\xf0"
    assert tokenizer.token_bytes(3 + 256 + 5) == b" ab"


def test_metaspace_is_understood_and_other_decoders_are_refused() -> None:
    backend = sentencepiece_like()
    backend.decoder = decoders.Metaspace()
    assert Tokenizer(backend, bos_id=1, adds_bos=True).decode([264, 261]) == "abb"
    state = json.loads(backend.to_str())
    for decoder in ({"type": "WordPiece", "prefix": "##", "cleanup": True}, None):
        with pytest.raises(ModelError, match="decodes by"):
            Tokenizer.from_json(json.dumps({**state, "decoder": decoder}), bos_id=1)
